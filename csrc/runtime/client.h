// The client: this machine's devices, their memories, and the programs loaded on them.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/buffer.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/in_flight.h"
#include "csrc/runtime/queue.h"

namespace pjrt_metal {

class Client;
class LogicalDevice;

enum class MemoryKind { kDevice = 0, kPinnedHost = 1, kUnpinnedHost = 2 };

// Kinds differ in name only: all are the same unified memory.
class MemorySpace {
 public:
  MemorySpace(LogicalDevice* device, int id, MemoryKind kind) : device_(device), id_(id), kind_(kind) {}
  LogicalDevice* device() const { return device_; }
  int id() const { return id_; }
  MemoryKind kind() const { return kind_; }
  const char* kind_name() const;

 private:
  LogicalDevice* device_;
  int id_;
  MemoryKind kind_;
};

class LogicalDevice {
 public:
  LogicalDevice(Client* client, int id, Device* device, uint64_t memory_limit);
  Client* client() const { return client_; }
  int id() const { return id_; }
  Device* device() const { return device_; }
  Allocator& allocator() const { return *allocator_; }
  Queue& queue() const { return *queue_; }
  InFlight& in_flight() { return in_flight_; }
  std::span<const std::unique_ptr<MemorySpace>> memories() const { return memories_; }
  MemorySpace* default_memory() const { return memories_[0].get(); }

  // The allocator's, waiting for executions in flight if there is no memory before they end.
  AllocationRef Allocate(size_t bytes, const std::string& tag);
  // Memory for the temporaries of a task of the queue's that only gives work to the device. The device works in order,
  // so programs in flight share it.
  AllocationRef AllocateArena(size_t bytes, const std::string& tag);

  // New memory of this device holding a copy of (or, where alignment permits and the caller allows it, a view
  // on) a host array; `on_done` is called when the runtime no longer reads `data`.
  // byte_strides empty: dense row-major.
  std::unique_ptr<Buffer> FromHost(MemorySpace* memory, const void* data, DType dtype, std::vector<int64_t> dims,
                                   std::span<const int64_t> byte_strides, std::span<const int64_t> minor_to_major,
                                   bool zero_copy, std::function<void()> on_done);
  std::unique_ptr<Buffer> Uninitialized(MemorySpace* memory, DType dtype, std::vector<int64_t> dims,
                                        std::span<const int64_t> minor_to_major, EventRef defined);

 private:
  Client* client_;
  int id_;
  Device* device_;
  std::shared_ptr<Allocator> allocator_;
  std::unique_ptr<Queue> queue_;
  InFlight in_flight_;
  std::weak_ptr<Allocation> arena_;  // of a program in flight
  std::vector<std::unique_ptr<MemorySpace>> memories_;
};

class Client {
 public:
  // `options`: PJRT create options as text, e.g. {"memory_fraction", "0.75"}. Throws for an unknown one.
  // memory_fraction: of the device's memory, how much may be allocated. trusted_programs: this process's jaxlib wrote
  // the programs itself (see mlir_lowering/compile_process.py). ignore_host_layout: reads to the host come in
  // the array's own layout, whatever is asked for (see csrc/pjrt/host.cc). compiler_version: becomes part of the
  // platform's version, by which JAX's compilation cache tells programs of different compilers apart. trial_command:
  // see SetTrialCommand (library_trial.h).
  explicit Client(const std::map<std::string, std::string>& options);
  ~Client();
  std::span<const std::unique_ptr<LogicalDevice>> devices() const { return devices_; }
  const std::string& platform_version() const { return platform_version_; }
  bool trusts_programs() const { return trusts_programs_; }
  bool ignores_host_layout() const { return ignores_host_layout_; }

 private:
  std::vector<std::unique_ptr<Device>> hardware_;
  std::vector<std::unique_ptr<LogicalDevice>> devices_;
  std::string platform_version_;
  bool trusts_programs_ = false;
  bool ignores_host_layout_ = false;
};

}  // namespace pjrt_metal
