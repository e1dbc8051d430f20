// One MTLCommandQueue: submissions share command buffers ("batches"), complete in order, and have
// steps on the host between their commands.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "csrc/metal/command_buffer.h"
#include "csrc/metal/objc.h"
#include "csrc/metal/recording.h"
#include "csrc/runtime/queue.h"

namespace pjrt_metal::metal {

// What an encoder and the queue know together of one submission. The queue's lock guards it.
struct Submission {
  std::optional<Error> error;  // the first
  double gpu_seconds = 0;      // of the command buffers that held a part of it and have completed
  std::function<void(std::optional<Error>)> done;
};
using SubmissionRef = std::shared_ptr<Submission>;

// Of an MTLCommandQueue, before Metal blocks who asks for one more.
constexpr uint64_t kMaxCommandBuffers = 128;

// Any thread may submit. Metal starts command buffers in order, but does not promise that they
// complete in order: completions are put in order here, so that a submission that is done implies
// that all earlier ones are.
//
// When is a batch committed? At once while the GPU has fewer than two command buffers: it would
// idle. Else it stays open, and later submissions join it, until one of those completes, or it is
// long or old when a submission comes, or somebody waits. So none is left behind, without a timer.
class CommandQueue : public std::enable_shared_from_this<CommandQueue> {
 public:
  explicit CommandQueue(Ref queue);

  // Each encodes `recording` as the next part of `submission`. Errors go to the submission, and
  // its later parts are not encoded.
  void Encode(const Recording& recording, const SubmissionRef& submission);
  // `work` then runs on a thread of the queue's, after everything encoded so far and before
  // everything encoded later; not if the submission has failed.
  void EncodeHost(const Recording& recording, const SubmissionRef& submission, std::function<void()> work);
  // `done` is called when the submission and all earlier ones are complete, with its error.
  void EncodeEnd(const Recording& recording, const SubmissionRef& submission,
                 std::function<void(std::optional<Error>)> done);
  // Returns the submission's error once everything encoded so far has completed.
  std::optional<Error> EncodeSync(const Recording& recording, const SubmissionRef& submission);
  // Waits for everything submitted, `done` included. To be called before the last reference is
  // dropped by others than the queue's own threads.
  void Close();

 private:
  using Lock = std::unique_lock<std::mutex>;

  // What comes after a batch's GPU work: a host step, or, without `work`, the submission's end.
  struct Then {
    SubmissionRef submission;
    std::function<void()> work;
  };
  enum class State { kEncoded, kCommitted, kCompleted };
  struct Batch {
    State state = State::kEncoded;
    std::optional<CommandBuffer> commands;  // none without GPU work
    std::chrono::steady_clock::time_point opened;
    std::vector<SubmissionRef> parts;  // what fails with it
    std::deque<Then> then;
    size_t host_steps = 0;  // of `then`, or running
  };
  using BatchRef = std::shared_ptr<Batch>;

  void EncodeLocked(Lock& lock, const Recording& recording, const SubmissionRef& submission);
  CommandBuffer& OpenCommandBuffer();
  // The batch that a step after everything encoded so far belongs to.
  Batch& Last();
  void Seal();
  bool GpuWouldIdle() const;
  void Advance(Lock& lock);
  void CommitEncoded();
  void Finish(Lock& lock, Then then);
  void RunHostStep(Then step);
  void Completed(Batch& batch);

  Ref queue_, descriptor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  BatchRef open_;                // takes more commands, or nullptr
  std::deque<BatchRef> sealed_;  // in order, until their last step is done
  bool in_step_ = false;         // a step of the first one is being run
  std::thread::id step_thread_;  // by this thread, if it has begun
  Queue host_;                   // the thread of the host steps
};

}  // namespace pjrt_metal::metal
