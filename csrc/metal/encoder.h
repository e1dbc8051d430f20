// Submissions to one Metal command queue, and what they name: buffers and pipelines.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "csrc/metal/memory.h"
#include "csrc/metal/objc.h"
#include "csrc/runtime/device.h"

namespace pjrt_metal::metal {

// `buffer_indices`: [[buffer(i)]] of the kInput and kOutput parameters; `args_index`: that of
// kArgs, or -1.
struct MetalPipeline : Pipeline {
  std::string name;
  Ref state;
  uint32_t max_threads = 0;  // in one threadgroup of this kernel
  std::vector<uint32_t> buffer_indices;
  int args_index = -1;
};

// One MTLCommandQueue. Metal starts its command buffers in order and tracks hazards between them,
// but does not promise that they complete in order: completions are put in order here, so that a
// submission that is done implies that all earlier ones are.
class CommandQueue : public std::enable_shared_from_this<CommandQueue> {
 public:
  using Done = std::function<void(std::optional<Error>)>;
  // `copy_bytes` gives the kernel for copies that a blit cannot make; called when the first one
  // comes.
  using MakeCopyBytes = std::function<std::shared_ptr<const MetalPipeline>()>;
  CommandQueue(Id device, Ref queue, MakeCopyBytes copy_bytes)
      : device_(Ref::Retain(device)), queue_(std::move(queue)), copy_bytes_(std::move(copy_bytes)) {}

  Id device() const { return device_.get(); }
  std::shared_ptr<const MetalPipeline> copy_bytes() const { return copy_bytes_(); }
  Ref NewCommandBuffer() const;  // throws Unavailable
  void Commit(const Ref& command_buffer, Done done);
  // Waits for everything committed so far.
  void Wait() const;

 private:
  struct InFlight {
    Ref command_buffer;
    Done done;
    bool completed = false;
    std::optional<Error> error;
  };
  void Completed(Id command_buffer);

  Ref device_, queue_;
  MakeCopyBytes copy_bytes_;
  mutable std::mutex mutex_;
  std::deque<InFlight> in_flight_;  // in order of commit
};

std::unique_ptr<Encoder> NewMetalEncoder(std::shared_ptr<CommandQueue> queue);

// Why a command buffer failed, with Metal's own text; none if it did not.
std::optional<Error> CommandBufferError(Id command_buffer);

// Threads in a threadgroup where the launch leaves the choice: at most 256 (8 SIMD groups keep a
// core busy and let several threadgroups share it), filled along x first since consecutive threads
// touch consecutive memory.
Size ChooseThreadgroup(const uint32_t (&threads)[3], uint32_t max_threads);

}  // namespace pjrt_metal::metal
