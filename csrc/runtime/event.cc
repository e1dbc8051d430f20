#include "csrc/runtime/event.h"

namespace pjrt_metal {

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

std::optional<Error> Event::Await() const {
  std::unique_lock lock(mutex_);
  condition_.wait(lock, [this] { return ready_; });
  return error_;
}

void Event::OnReady(Callback callback) {
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
