#include "csrc/runtime/in_flight.h"

#include <utility>

namespace pjrt_metal {
namespace {

// Enough to keep a device busy while Python prepares the next; as many as XLA's GPU client has.
constexpr size_t kMost = 32;

}  // namespace

void InFlight::Add(EventRef done) {
  if (done->IsReady()) return;
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(done));
}

void InFlight::AwaitRoom() {
  while (AwaitOldestOf(kMost)) {
  }
}

bool InFlight::AwaitOldestOf(size_t count) {
  EventRef oldest;
  {
    const std::lock_guard lock(mutex_);
    while (!events_.empty() && events_.front()->IsReady()) events_.pop_front();
    if (events_.size() < count) return false;
    oldest = events_.front();
  }
  if (queue_.RunsHere() && !oldest->IsEnqueuedOn(&queue_)) return false;
  oldest->Await();
  return true;
}

}  // namespace pjrt_metal
