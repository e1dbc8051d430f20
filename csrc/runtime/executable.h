// A Program loaded on a device: pipelines made, constants uploaded, ready to execute any number of times.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "csrc/runtime/client.h"
#include "csrc/runtime/host_call.h"
#include "csrc/runtime/program.h"

namespace pjrt_metal {

class LoadedProgram : public std::enable_shared_from_this<LoadedProgram> {
 public:
  // Compiles the kernels. Throws if the Program's target does not fit the device, or a kernel does not compile.
  LoadedProgram(LogicalDevice* device, std::shared_ptr<const Program> program);

  struct Result {
    std::vector<std::unique_ptr<Buffer>> outputs;
    EventRef done;
  };
  // Enqueues one execution and returns; a small program on an idle device runs inline. `non_donatable`: indices
  // of parameters that must not be donated though the program would; `user_data`: for FFI handlers. Donated arguments
  // are deleted. Throws InvalidArgument for a wrong count, dtype, shape or device, or a deleted argument (message names
  // the index, what was expected and what came). Errors later on travel in the outputs' events and `done`; those of a
  // program with ordered effects are thrown here: JAX gives its token to the next such program, which would fail too.
  Result Execute(std::span<Buffer* const> arguments, std::span<const int64_t> non_donatable,
                 std::shared_ptr<const FfiUserData> user_data = nullptr);

  const Program& program() const { return *program_; }
  LogicalDevice* device() const { return device_; }

 private:
  friend class Execution;

  void LoadHostCalls(const Sequence& sequence);
  void CheckArguments(std::span<Buffer* const> arguments) const;
  bool Donates(size_t parameter, std::span<const int64_t> non_donatable) const;
  MemorySpace* MemoryFor(const TensorInfo& tensor) const;

  LogicalDevice* device_;
  std::shared_ptr<const Program> program_;
  std::vector<PipelineRef> pipelines_;  // one a kernel
  std::vector<std::unique_ptr<HostCall>> host_calls_;
  std::vector<LibraryCallRef> library_calls_;  // one a library op; nullptr: its kernels run
  AllocationRef constants_;
  std::vector<size_t> constant_offsets_;
  std::vector<MemorySpace*> output_memories_;
  bool donates_any_ = false;
  bool uses_arena_ = false;
  bool is_ordered_ = false;     // its effects have an order
  bool waits_on_host_ = false;  // the host looks at results, or calls others, between its commands
  bool small_ = false;          // worth running on the caller's thread
};

}  // namespace pjrt_metal
