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
  while (!events_.empty() && events_.front()->IsReady()) events_.pop_front();
  events_.push_back(std::move(done));
}

EventRef InFlight::Oldest() {
  const std::lock_guard lock(mutex_);
  while (!events_.empty() && events_.front()->IsReady()) events_.pop_front();
  return events_.empty() ? nullptr : events_.front();
}

size_t InFlight::size() {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

void InFlight::AwaitRoom() {
  while (size() >= kMost && AwaitOldest()) {
  }
}

bool InFlight::AwaitOldest() {
  const EventRef oldest = Oldest();
  if (!oldest || (queue_.RunsHere() && !oldest->IsEnqueuedOn(&queue_))) return false;
  oldest->Await();
  return true;
}

}  // namespace pjrt_metal
