// A one-shot completion with an optional error. Every asynchronous result of the runtime is one.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "csrc/runtime/error.h"

namespace pjrt_metal {

class Event;
using EventRef = std::shared_ptr<Event>;

class Event {
 public:
  using Callback = std::function<void(const std::optional<Error>&)>;

  // An event that is already complete; the shared success instance costs no allocation.
  static EventRef Ready();
  static EventRef Failed(Error error);

  bool IsReady() const;
  // Blocks until set; returns the error, if any. Never throws.
  std::optional<Error> Await() const;
  // Runs `callback` once: at once on this thread if ready, else on the thread that calls Set.
  void OnReady(Callback callback);
  // Completes the event. A second call is ignored. Callbacks run outside the lock.
  void Set(std::optional<Error> error = std::nullopt);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable condition_;
  bool ready_ = false;
  std::optional<Error> error_;
  std::vector<Callback> callbacks_;
};

}  // namespace pjrt_metal
