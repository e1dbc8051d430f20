// A one-shot completion with an optional error. Every asynchronous result of the runtime is one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "csrc/runtime/error.h"

namespace pjrt_metal {

class Event;
class Queue;
using EventRef = std::shared_ptr<Event>;

class Event {
 public:
  using Callback = std::function<void(const std::optional<Error>&)>;

  // An event that is already complete; the shared success instance costs no allocation.
  static EventRef Ready();
  static EventRef Failed(Error error);

  bool IsReady() const;
  // Blocks until set; returns the error, if any, or WaitsForItself. Never throws.
  std::optional<Error> Await() const;
  // Runs `callback` once: at once on this thread if ready, else on the thread that calls Set.
  void OnReady(Callback callback);
  // Completes the event. A second call is ignored. Callbacks run outside the lock.
  void Set(std::optional<Error> error = std::nullopt);

  // Says that a task of `queue` will set it.
  void QueuedOn(const Queue* queue) { queued_on_ = queue; }
  const Queue* queued_on() const { return queued_on_; }
  // Why nobody on this thread may wait for it: the thread is in host code that a program calls, and what will set the
  // event was queued behind that program, or is it.
  std::optional<Error> WaitsForItself() const;
  // What WaitsForItself last said on this thread since it was asked.
  static std::optional<Error> TakeRefusal();
  // Says that what will set it has been given to the device of `queue`, which works in order: what is enqueued there
  // from now on comes after it without waiting.
  void EnqueuedOn(const Queue* queue) { enqueued_on_ = queue; }
  bool IsEnqueuedOn(const Queue* queue) const { return enqueued_on_ == queue; }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable condition_;
  bool ready_ = false;
  std::optional<Error> error_;
  std::vector<Callback> callbacks_;
  std::atomic<const Queue*> queued_on_ = nullptr;
  std::atomic<const Queue*> enqueued_on_ = nullptr;
};

}  // namespace pjrt_metal
