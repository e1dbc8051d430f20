// What the C API's opaque handles point to. A buffer or executable keeps its client alive, so the
// order in which a client destroys its handles does not matter.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/pjrt/handle.h"
#include "csrc/pjrt/pjrt_c_api.h"
#include "csrc/runtime/buffer.h"
#include "csrc/runtime/client.h"
#include "csrc/runtime/event.h"
#include "csrc/runtime/executable.h"
#include "csrc/runtime/ffi_registry.h"
#include "csrc/runtime/program.h"

namespace pjrt_metal {

inline constexpr std::string_view kPlatformName = "metal";

// PJRT_NamedValue's with the memory that they point to.
class Attributes {
 public:
  void Add(const char* name, std::string_view value);
  void Add(const char* name, int64_t value);
  void Add(const char* name, float value);
  void Add(const char* name, std::vector<int64_t> value);
  std::span<const PJRT_NamedValue> values() const { return values_; }

 private:
  PJRT_NamedValue& New(const char* name, PJRT_NamedValue_Type type, size_t size);
  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> lists_;
  std::vector<PJRT_NamedValue> values_;
};

// A client's options as text, by name. Throws InvalidArgument for an unknown type.
std::map<std::string, std::string> OptionsFromClient(const PJRT_NamedValue* options, size_t count);

// The wrapper of a MemorySpace. PJRT_Memory's function table pointer stays null: clients then keep
// what they attach to a memory themselves.
struct MemoryObject : PJRT_Memory {
  PJRT_METAL_HANDLE(MemoryObject)
  MemorySpace* space = nullptr;
  PJRT_Device* device = nullptr;
  std::string text;
};
MemoryObject& ToMemory(PJRT_Memory* memory, const char* name);

}  // namespace pjrt_metal

struct PJRT_Event {
  PJRT_METAL_HANDLE(PJRT_Event)
  pjrt_metal::EventRef event;
  bool of_client = false;  // which then sets it
};

struct PJRT_MemoryDescription {
  std::string_view kind;
  int kind_id;
};

struct PJRT_DeviceDescription {
  PJRT_METAL_HANDLE(PJRT_DeviceDescription)
  PJRT_DeviceDescription(int id, std::string kind, const std::string& target);
  int id;
  std::string kind, debug_string, text;
  pjrt_metal::Attributes attributes;
};

// Devices that programs are compiled for, here or elsewhere.
struct PJRT_TopologyDescription {
  PJRT_METAL_HANDLE(PJRT_TopologyDescription)
  PJRT_TopologyDescription(std::string target, std::string kind, std::string platform_version, size_t num_devices);
  std::string target, kind, platform_version;
  pjrt_metal::Attributes attributes;
  std::vector<std::unique_ptr<PJRT_DeviceDescription>> descriptions;
  std::vector<PJRT_DeviceDescription*> handles;
  bool of_client = false;  // which then frees it
};

struct PJRT_Device {
  PJRT_METAL_HANDLE(PJRT_Device)
  PJRT_DeviceDescription* description;  // the topology's
  PJRT_Client* client;
  pjrt_metal::LogicalDevice* device;
  std::vector<std::unique_ptr<pjrt_metal::MemoryObject>> memories;  // the default memory first
  std::vector<PJRT_Memory*> memory_handles;
};

struct PJRT_Client : std::enable_shared_from_this<PJRT_Client> {
  PJRT_METAL_HANDLE(PJRT_Client)
  explicit PJRT_Client(const std::map<std::string, std::string>& options);
  PJRT_Device* device(int id) const;  // nullptr if there is none
  pjrt_metal::MemoryObject* memory(const pjrt_metal::MemorySpace* space) const;

  pjrt_metal::Client runtime;
  std::unique_ptr<PJRT_TopologyDescription> topology;
  std::vector<std::unique_ptr<PJRT_Device>> devices;
  std::vector<PJRT_Device*> device_handles;
  std::vector<PJRT_Memory*> memory_handles;
  std::mutex mutex;
  std::map<void*, size_t> dma_mapped;  // start and bytes; under `mutex`
  std::shared_ptr<PJRT_Client> self;   // the client's own hold, until Client_Destroy
};

struct PJRT_Buffer {
  PJRT_METAL_HANDLE(PJRT_Buffer)
  std::shared_ptr<PJRT_Client> client;
  pjrt_metal::MemoryObject* memory;
  std::unique_ptr<pjrt_metal::Buffer> buffer;
  pjrt_metal::EventRef defined;       // outlives the buffer's deletion
  std::atomic<bool> on_host = false;  // the host may have read it
};

struct PJRT_ExecuteContext {
  PJRT_METAL_HANDLE(PJRT_ExecuteContext)
  std::mutex mutex;
  pjrt_metal::FfiUserData user_data;
};

struct PJRT_Layouts_MemoryLayout {
  PJRT_METAL_HANDLE(PJRT_Layouts_MemoryLayout)
  std::string text;
  bool of_executable;  // which then frees it
};

namespace pjrt_metal {

enum class HostReadScope : int;
enum class HostReadGuard : int;
void GuardHostReads(HostReadScope scope, HostReadGuard guard) noexcept;  // see private_extension.h

PJRT_Buffer* NewBuffer(PJRT_Client& client, std::unique_ptr<Buffer> buffer);

// A Program and what the C API tells of it, in the form in which it is told.
struct CompiledProgram {
  // Throws InvalidArgument if the bytes are not a Program.
  CompiledProgram(std::string bytes, std::string compile_options);
  std::string bytes, compile_options;
  std::shared_ptr<const Program> program;
  std::string hlo_module;
  std::vector<PJRT_Buffer_Type> output_types;
  std::vector<int64_t> output_dims;  // of all outputs, one after another
  std::vector<size_t> output_ranks;
  std::vector<const char*> parameter_kinds, output_kinds;
  std::vector<size_t> parameter_kind_sizes, output_kind_sizes;
  std::vector<std::unique_ptr<PJRT_Layouts_MemoryLayout>> layouts;
  std::vector<PJRT_Layouts_MemoryLayout*> parameter_layouts, output_layouts;
  Attributes cost;
  int64_t code_bytes = 0;
};

// The optimized program as a HloModuleProtoWithConfig, which clients can parse.
std::string HloModuleWithConfig(const Program& program);

// The compiler's Program for a client's.
std::string CompileBytes(const PJRT_Program* program, std::string_view options, const std::string& target,
                         bool trusted);

}  // namespace pjrt_metal

struct PJRT_Executable {
  PJRT_METAL_HANDLE(PJRT_Executable)
  std::shared_ptr<const pjrt_metal::CompiledProgram> compiled;
};
