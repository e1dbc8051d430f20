#include "csrc/runtime/event.h"

#include <utility>

#include "csrc/runtime/forked.h"
#include "csrc/runtime/queue.h"

namespace pjrt_metal {
namespace {

thread_local std::optional<Error> refusal;

}  // namespace

EventRef Event::Ready() {
  static const EventRef ready = [] {
    auto event = std::make_shared<Event>();
    event->Set();
    return event;
  }();
  return ready;
}

EventRef Event::Failed(Error error) {
  auto event = std::make_shared<Event>();
  event->Set(std::move(error));
  return event;
}

bool Event::IsReady() const {
  const std::lock_guard lock(mutex_);
  return ready_;
}

std::optional<Error> Event::WaitsForItself() const {
  const Queue* const queue = queued_on_;
  if (queue == nullptr || enqueued_on_ != nullptr || !Queue::CallsHostHere(queue) || IsReady()) return std::nullopt;
  refusal = FailedPrecondition(
      "a callback waits for a result of a program that was queued behind the one that called it, or of that one "
      "itself: neither could go on. Give the callback what it needs as an argument, or wait for it before the program "
      "starts");
  return refusal;
}

std::optional<Error> Event::TakeRefusal() { return std::exchange(refusal, std::nullopt); }

std::optional<Error> Event::Await() const {
  if (IsForked() && !IsReady()) return ForkedError();  // nobody is left who would set it
  if (auto error = WaitsForItself()) return error;
  std::unique_lock lock(mutex_);
  condition_.wait(lock, [this] { return ready_; });
  return error_;
}

void Event::OnReady(Callback callback) {
  if (IsForked() && !IsReady()) return callback(ForkedError());
  {
    const std::lock_guard lock(mutex_);
    if (!ready_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(error_);  // immutable once ready
}

void Event::Set(std::optional<Error> error) {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard lock(mutex_);
    if (ready_) return;
    ready_ = true;
    error_ = std::move(error);
    callbacks.swap(callbacks_);
    condition_.notify_all();
  }
  for (const Callback& callback : callbacks) callback(error_);
}

}  // namespace pjrt_metal
