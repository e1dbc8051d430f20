#include "csrc/metal/command_queue.h"

#include <algorithm>
#include <exception>

#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

// One command buffer runs while the next waits at the GPU.
constexpr size_t kBusy = 2;
// Waiting longer than it takes to commit saves nothing.
constexpr std::chrono::microseconds kOldBatch(500);
// A Metal queue has kMaxCommandBuffers that have not completed, and blocks the thread that asks for one more; ours must
// not wait there, since completions need the lock that it holds. What is above the batches' own is for those that
// MPSGraph makes.
constexpr size_t kMaxBatches = 32;

}  // namespace

CommandQueue::CommandQueue(Ref queue) : queue_(std::move(queue)), descriptor_(New(Class::kMTLCommandBufferDescriptor)) {
  Send<Message::kSetErrorOptions>(descriptor_.get(), kEncoderExecutionStatus);
}

CommandBuffer& CommandQueue::OpenCommandBuffer() {
  if (!open_) open_ = std::make_shared<Batch>();
  if (!open_->commands) {
    const Pool pool;
    Ref buffer = Ref::Retain(Send<Message::kCommandBufferWithDescriptor>(queue_.get(), descriptor_.get()));
    if (!buffer) throw Error(Code::kUnavailable, "Metal gave no command buffer");
    open_->commands.emplace(std::move(buffer));
    open_->opened = std::chrono::steady_clock::now();
  }
  return *open_->commands;
}

void CommandQueue::EncodeLocked(Lock& lock, const Recording& recording, const SubmissionRef& submission) {
  if (recording.commands.empty()) return;
  // What MPSGraph commits on its way must not pass a host step, nor what waits behind one.
  const auto in_turn = [&] {
    return !recording.calls_graph || std::ranges::all_of(sealed_, [](const BatchRef& b) { return b->host_steps == 0; });
  };
  // A step that submits must not wait for itself to return.
  const bool in_step = step_thread_ == std::this_thread::get_id();
  changed_.wait(lock, [&] { return in_step || (sealed_.size() < kMaxBatches && in_turn()); });
  if (!in_turn() && !submission->error) submission->error = Internal("a library call is submitted by a host step");
  if (submission->error) return;
  try {
    if (open_ && open_->commands && !open_->commands->Takes(recording)) Seal();
    CommandBuffer& commands = OpenCommandBuffer();
    std::vector<SubmissionRef>& parts = open_->parts;
    if (std::ranges::find(parts, submission) == parts.end()) parts.push_back(submission);
    commands.Encode(recording);
    if (commands.continued()) Seal();
  } catch (const Error& error) {
    submission->error = error;
  } catch (const std::bad_alloc&) {
    submission->error = ResourceExhausted("the host is out of memory while encoding a submission");
  } catch (...) {  // an Objective-C exception
    submission->error = Internal("Metal refused a submission with an exception");
  }
}

CommandQueue::Batch& CommandQueue::Last() {
  if (open_) return *open_;
  if (sealed_.empty()) open_ = std::make_shared<Batch>();
  return open_ ? *open_ : *sealed_.back();
}

void CommandQueue::Seal() {
  if (open_) sealed_.push_back(std::move(open_));
}

void CommandQueue::Encode(const Recording& recording, const SubmissionRef& submission) {
  Lock lock(mutex_);
  EncodeLocked(lock, recording, submission);
  Advance(lock);
}

void CommandQueue::EncodeHost(const Recording& recording, const SubmissionRef& submission, std::function<void()> work) {
  Lock lock(mutex_);
  EncodeLocked(lock, recording, submission);
  Batch& last = Last();
  last.then.push_back({submission, std::move(work)});
  ++last.host_steps;
  Seal();  // later commands come after the step
  Advance(lock);
}

void CommandQueue::EncodeEnd(const Recording& recording, const SubmissionRef& submission,
                             std::function<void(std::optional<Error>)> done) {
  Lock lock(mutex_);
  EncodeLocked(lock, recording, submission);
  submission->done = std::move(done);
  Last().then.push_back({submission, nullptr});
  Advance(lock);
}

std::optional<Error> CommandQueue::EncodeSync(const Recording& recording, const SubmissionRef& submission) {
  Lock lock(mutex_);
  EncodeLocked(lock, recording, submission);
  Seal();
  Advance(lock);
  const std::vector<BatchRef> earlier(sealed_.begin(), sealed_.end());
  changed_.wait(lock, [&] {
    return std::ranges::all_of(
        earlier, [](const BatchRef& batch) { return batch->state == State::kCompleted && batch->host_steps == 0; });
  });
  return submission->error;
}

void CommandQueue::Close() {
  {
    Lock lock(mutex_);
    Seal();
    Advance(lock);
    changed_.wait(lock, [this] { return sealed_.empty() && !in_step_; });
  }
  // A task's last act is to drop its reference to this queue, which must not be the last.
  host_.Drain();
}

// Not while a host step is to come: what is behind it cannot start anyway.
bool CommandQueue::GpuWouldIdle() const {
  size_t committed = 0;
  for (const BatchRef& batch : sealed_) {
    if (batch->host_steps > 0) return false;
    if (batch->state == State::kCommitted) ++committed;
  }
  return committed < kBusy;
}

// Does all that can be done now; to be called after every change.
void CommandQueue::Advance(Lock& lock) {
  while (true) {
    if (open_ &&
        (GpuWouldIdle() || (open_->commands && (open_->commands->IsLong() ||
                                                std::chrono::steady_clock::now() - open_->opened > kOldBatch)))) {
      Seal();
    }
    CommitEncoded();
    changed_.notify_all();
    if (in_step_ || sealed_.empty() || sealed_.front()->state != State::kCompleted) return;
    Batch& first = *sealed_.front();
    if (first.then.empty()) {
      sealed_.pop_front();
      continue;
    }
    Then then = std::move(first.then.front());
    first.then.pop_front();
    Finish(lock, std::move(then));
  }
}

// Command buffers behind a host step are encoded and wait here, not at an event in the GPU: Metal
// ends a command buffer that waits too long, and a host step may take any time.
void CommandQueue::CommitEncoded() {
  for (const BatchRef& batch : sealed_) {
    if (batch->state == State::kEncoded && batch->commands) {
      batch->state = State::kCommitted;
      // The queue lives until its last command buffer has completed. Handlers run on Metal's
      // threads, never inside commit.
      batch->commands->Commit([self = shared_from_this(), batch] { self->Completed(*batch); });
    } else if (batch->state == State::kEncoded) {
      batch->state = State::kCompleted;
    }
    if (batch->host_steps > 0) return;
  }
}

// One step at a time, in order: `in_step_` keeps other threads from the next one.
void CommandQueue::Finish(Lock& lock, Then then) {
  if (then.work && then.submission->error) {
    --sealed_.front()->host_steps;
    return;
  }
  in_step_ = true;
  if (then.work) {
    host_.Submit([self = shared_from_this(), then = std::move(then)]() mutable { self->RunHostStep(std::move(then)); });
    return;
  }
  step_thread_ = std::this_thread::get_id();
  auto done = std::move(then.submission->done);
  lock.unlock();
  if (done) done(then.submission->error);
  done = nullptr;  // what it holds is released outside the lock
  lock.lock();
  step_thread_ = {};
  in_step_ = false;
}

void CommandQueue::RunHostStep(Then step) {
  Lock lock(mutex_);
  step_thread_ = std::this_thread::get_id();
  lock.unlock();
  std::optional<Error> error;
  try {
    step.work();
  } catch (const Error& thrown) {
    error = thrown;
  } catch (const std::bad_alloc&) {
    error = ResourceExhausted("the host is out of memory in a host step");
  } catch (const std::exception& thrown) {
    error = Internal(std::string("a host step failed: ") + thrown.what());
  }
  step.work = nullptr;  // what it holds is released before `done` is called
  lock.lock();
  if (error) step.submission->error = std::move(error);
  --sealed_.front()->host_steps;
  step_thread_ = {};
  in_step_ = false;
  Advance(lock);
}

void CommandQueue::Completed(Batch& batch) {
  const std::optional<Error> error = batch.commands->Failure();
  const auto [start, end] = batch.commands->Times();
  if (LogEnabled()) {
    LogPhase("execute: gpu", (end - start) * 1e3,
             std::to_string(batch.commands->commands()) + " commands of " + std::to_string(batch.parts.size()) +
                 " submissions");
  }
  Lock lock(mutex_);
  batch.state = State::kCompleted;
  for (const SubmissionRef& submission : batch.parts) {
    if (error && !submission->error) submission->error = error;
    submission->gpu_seconds += end - start;
  }
  batch.commands.reset();
  Advance(lock);
}

}  // namespace pjrt_metal::metal
