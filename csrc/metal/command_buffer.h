// One MTLCommandBuffer: recordings are encoded into it, and it says what became of them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/metal/hazards.h"
#include "csrc/metal/objc.h"
#include "csrc/metal/recording.h"
#include "csrc/runtime/error.h"

namespace pjrt_metal::metal {

// MPSGraph may commit the MTLCommandBuffer on the way and go on in another: this is then all of them.
class CommandBuffer {
 public:
  explicit CommandBuffer(Ref command_buffer) : command_buffer_(std::move(command_buffer)) {}
  CommandBuffer(const CommandBuffer&) = delete;
  CommandBuffer& operator=(const CommandBuffer&) = delete;
  ~CommandBuffer();

  // Throws what Metal refuses; the commands before that one stay.
  void Encode(const Recording& recording);
  size_t commands() const { return commands_; }
  bool IsLong() const { return commands_ >= kLongCommands || bytes_ >= kLongBytes || work_ >= kLongWork; }
  // Only before it is long.
  bool Takes(const Recording& recording) const { return commands_ == 0 || Joins(work_, recording.work); }
  // MPSGraph has committed a part.
  bool continued() const { return !committed_.empty(); }
  // `handler` is called once, on a thread of Metal's, when all is complete.
  void Commit(std::function<void()> handler);

  // After completion, once. None if the command buffer did not fail; else Metal's own text and the
  // kernels that it may be about, or what MPSGraph said.
  std::optional<Error> Failure();
  // When the GPU began and ended, in seconds of the host's clock since it started.
  std::pair<double, double> Times() const;

 private:
  // What an encoder holds, for errors.
  struct Pass {
    std::string label;
    std::vector<std::string> kernels;  // without those that are as the one before
  };
  Id Encoder();
  void EndEncoder();
  void Encode(const Launch& launch, const Recording& recording);
  void Encode(const GraphLaunch& launch, const Recording& recording);
  void Watch();
  std::optional<Error> Failure(Id buffer) const;
  std::string Blamed(Id error) const;

  // Counts what is still to complete: watched command buffers, and Commit to come.
  struct Completion {
    std::atomic<size_t> left = 1;
    std::function<void()> handler;
  };
  std::shared_ptr<Completion> completion_ = std::make_shared<Completion>();
  std::vector<Ref> committed_;  // by MPSGraph, before this one
  Ref command_buffer_;
  bool watched_ = false;
  Ref encoder_;                 // open, or none
  Id state_ = nullptr;          // the pipeline state set in the open encoder
  Hazards hazards_;             // of the open encoder
  BoundBuffer bound_[31] = {};  // in the open encoder, by index
  std::vector<Pass> passes_;
  size_t commands_ = 0;
  uint64_t graph_number_ = 0;  // as which library calls report their errors; 0: there are none
  uint64_t bytes_ = 0;
  uint64_t work_ = 0;
};

}  // namespace pjrt_metal::metal
