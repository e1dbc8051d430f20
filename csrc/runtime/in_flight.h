// The executions of one queue that have not completed. Python may enqueue programs faster than they run: each holds
// memory, so their number is limited, and who finds no memory waits for one to end.
#pragma once

#include <deque>
#include <mutex>

#include "csrc/runtime/event.h"
#include "csrc/runtime/queue.h"

namespace pjrt_metal {

class InFlight {
 public:
  explicit InFlight(const Queue& queue) : queue_(queue) {}
  void Add(EventRef done);
  // Returns when one more may be added.
  void AwaitRoom();
  // Waits for the oldest. False if none is left, or only what waits for this thread: a task of the queue's calls.
  bool AwaitOldest() { return AwaitOldestOf(1); }

 private:
  // Waits for the oldest if at least `count` are in flight; false if it did not.
  bool AwaitOldestOf(size_t count);

  const Queue& queue_;
  std::mutex mutex_;
  std::deque<EventRef> events_;  // in the order of the queue
};

}  // namespace pjrt_metal
