// What the runtime asks of a device. Two implementations: csrc/metal (an Apple GPU) and csrc/software
// (the software Metal device: the same kernels, compiled by the host's C++ compiler, run on the CPU).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "csrc/runtime/error.h"
#include "csrc/runtime/library_op.h"

namespace pjrt_metal {

struct DeviceInfo {
  std::string kind;    // what jax shows as device_kind: "Apple M2 Pro", "software Metal (AMD EPYC)"
  std::string target;  // the compiler's Target, see mlir_lowering/targets.py: "software:threads=2,vector_bytes=64"
  std::string platform_version;   // device implementation and its version, part of the compilation cache's key
  uint64_t memory_bytes = 0;      // memory this process may plan to use
  uint64_t max_buffer_bytes = 0;  // largest single allocation
  std::string details;            // more of the hardware, for people
};

// Unified memory: `data` is addressable by the host for the allocation's whole life, on both devices.
class Allocation {
 public:
  virtual ~Allocation() = default;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // The device's own object behind this one: an allocator's block forwards to the memory it hands out.
  virtual Allocation* device_allocation() { return this; }
  // Kept for later (true), or handed out again: the device need not hold the pages of what nobody uses.
  virtual void SetIdle(bool idle) { (void)idle; }

 protected:
  Allocation(std::byte* data, size_t size) : data_(data), size_(size) {}
  std::byte* data_;
  size_t size_;
};
using AllocationRef = std::shared_ptr<Allocation>;

// Where a kernel parameter comes from. The order is the order of the kernel function's parameters; a
// parameter of a buffer kind takes the next [[buffer(i)]] index.
enum class ParamKind : uint8_t {
  kInput = 0,                        // device const T*
  kOutput = 1,                       // device T*
  kArgs = 2,                         // constant T& or constant T*: bytes given with the launch
  kThreadPositionInGrid = 3,         // uint3 (always three components)
  kThreadgroupPositionInGrid = 4,    // uint3
  kThreadPositionInThreadgroup = 5,  // uint3
  kThreadIndexInSimdgroup = 6,       // uint
  kSimdgroupIndexInThreadgroup = 7,  // uint
  kThreadsPerThreadgroup = 8,        // uint3
  kThreadgroupsPerGrid = 9,          // uint3
};

struct KernelSource {
  std::string name;    // the kernel function's name, unique by content: "k_<hash>"
  std::string source;  // MSL that follows the Program's preamble; defines exactly that function
  std::vector<ParamKind> params;
  bool on_host = false;  // needs what Metal lacks (double): runs as a host step on either device
  // The most threads in a threadgroup that a launch asks for; 0: all let the device choose.
  uint32_t threadgroup_threads = 0;
};

// A compiled kernel, ready to dispatch.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
};
using PipelineRef = std::shared_ptr<const Pipeline>;

// A call of the vendor's library, prepared for one device.
class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
};
using LibraryCallRef = std::shared_ptr<const LibraryCall>;

struct Binding {
  Allocation* allocation;
  size_t offset;
  size_t bytes = SIZE_MAX;  // that may be accessed, if known; at most to the allocation's end
  // Whose bytes they are, for encoders that check contents: memory is reused, and what another owner left in it is
  // nothing. 0: nobody's in particular.
  uint32_t owner = 0;
};

// What a launch is for, for people (mlir_lowering/program.py says what the parts are).
struct Label {
  std::string op, location, schedule, detail;
  // "stablehlo.add at model.py:3, schedule pointwise"
  std::string Text() const { return op + (location.empty() ? "" : " at " + location) + ", schedule " + schedule; }
};

// `name` of a kernel, and what it was launched for.
inline std::string Named(const std::string& name, const Label* label) {
  return label == nullptr ? name : name + " (" + label->Text() + ")";
}

struct Grid {
  uint32_t threads[3];          // threads in the grid, all three at least 1
  uint32_t per_threadgroup[3];  // threads in a threadgroup; {0,0,0} lets the device choose (no threadgroup memory used)
  // Innermost iterations that all threads make at most (mlir_lowering/work.py), if they are worth counting. A device
  // may let others at it between launches that do much.
  uint64_t work = 0;
  // What the launch is for, if that is known: for errors and captures. Lives as long as the submission.
  const Label* label = nullptr;
};

// Receives one submission's commands in order. Not thread-safe. Commands see the effects of earlier ones.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // `buffers` in the order of the pipeline's kInput/kOutput parameters; `args` the bytes of kArgs, if any.
  virtual void Dispatch(const Pipeline& pipeline, std::span<const Binding> buffers, std::span<const std::byte> args,
                        const Grid& grid) = 0;
  virtual void Copy(Binding source, Binding destination, size_t bytes) = 0;
  // `buffers`: lhs, rhs, result. Only what the device's PrepareLibraryCall gave.
  virtual void Call(const LibraryCall&, std::span<const Binding>) {
    throw Internal("a library call on a device without a library");
  }
  // Runs `work` on the host after every command before it and before every one after it; what it throws is the
  // submission's error. Possibly before this returns.
  virtual void Host(std::function<void()> work) = 0;
  // Everything encoded so far has completed and is visible to the host when this returns.
  virtual void Sync() = 0;
  // Sync, and how many seconds the device was at work on what was encoded since the last one. Only on a
  // device that has a library to be compared with kernels.
  virtual double SyncAndTime() { throw Internal("a device that does not know its times"); }
  // Whether reads of what nobody wrote are errors here. Only then are the next two called: the bytes hold what their
  // owner wants from now on, or nothing yet; and throws Internal, naming `what`, if some of them hold nothing.
  virtual bool checks_contents() const { return false; }
  virtual void SetContents(const Binding&, [[maybe_unused]] bool written) {}
  virtual void CheckContents(const Binding&, [[maybe_unused]] const std::string& what) {}
  // Ends the submission; `done` is called once (possibly before this returns) with the error, if any.
  // Allocations and pipelines named by commands must live until then: the caller keeps them.
  virtual void Commit(std::function<void(std::optional<Error>)> done) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // Uninitialized memory, 256-byte aligned (page-aligned from 16 KiB). Throws ResourceExhausted.
  virtual AllocationRef Allocate(size_t bytes) = 0;
  // Device access to memory the caller owns, without a copy; nullptr if this device cannot (alignment).
  virtual AllocationRef Wrap(void* data, size_t bytes) = 0;
  // Compiles the kernels (in parallel where that pays, using the device's caches), each preceded by
  // `preamble`, which several kernels of one compilation unit share; same order as given.
  // Throws with the compiler's own message, the command to repeat it and the source's path or text.
  virtual std::vector<PipelineRef> Compile(const std::string& preamble, std::span<const KernelSource> kernels) = 0;
  virtual bool has_library() const { return false; }
  // nullptr if the device has no library, or one that cannot do this. `whole`: all three arrays begin where
  // their allocations do. May be called by any thread.
  virtual LibraryCallRef PrepareLibraryCall(const LibraryOp&, [[maybe_unused]] bool whole) { return nullptr; }
  virtual std::unique_ptr<Encoder> NewEncoder() = 0;
  // When the system says that memory is short, calls `release`, which gives back what nobody uses, on any thread, until
  // the device goes. Only where the system says so.
  virtual void OnMemoryPressure(std::function<void()> release) { (void)release; }
  // True if dispatching runs the work on the calling thread (so a submission should leave the caller's thread).
  virtual bool runs_on_caller() const = 0;
};

// All devices of this machine, best first: Apple GPUs, else the software device. Throws if there is none.
std::vector<std::unique_ptr<Device>> DiscoverDevices();

}  // namespace pjrt_metal
