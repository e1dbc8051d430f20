#include "csrc/metal/residency.h"

#include "csrc/runtime/environment.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

// Less than the second after which the system was seen to give up a set.
constexpr std::chrono::milliseconds kBeat(500);
// After the last submission; then other programs may have the memory.
constexpr std::chrono::seconds kKeptAlive(60);

}  // namespace

Residency::Residency(Id device, Id queue) : queue_(Ref::Retain(queue)) {
  if (!environment::Residency()) {
    LogPhase("metal: no residency set", 0, "PJRT_METAL_RESIDENCY=0");
    return;
  }
  const Ref descriptor = New(Class::kMTLResidencySetDescriptor);
  if (!descriptor) return;
  Id error = nullptr;
  const auto made = SendIfAvailable<Message::kNewResidencySet>(device, descriptor.get(), &error);
  if (!made) return;
  set_ = Ref::Adopt(*made);
  if (!set_) {
    LogPhase("metal: no residency set", 0, ErrorText(error));
    return;
  }
  SendIfAvailable<Message::kAddResidencySet>(queue, set_.get());
  beats_ = std::thread([this] { BeatWhileUsed(); });
}

void Residency::Add(Id buffer) {
  const std::lock_guard lock(mutex_);
  if (!set_) return;
  entries_.emplace(buffer, Entry{});
  added_ = SendIfAvailable<Message::kAddAllocation>(set_.get(), buffer);
}

void Residency::Remove(Id buffer) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(buffer);
  if (!set_ || found == entries_.end()) return;
  if (found->second.in_set) {
    const Pool pool;  // memory is given up on any thread
    removed_ = SendIfAvailable<Message::kRemoveAllocation>(set_.get(), buffer);
    if (found->second.idle) --idle_in_set_;
    Wake();
  }
  entries_.erase(found);
}

void Residency::SetIdle(Id buffer, bool idle) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(buffer);
  if (!set_ || found == entries_.end() || found->second.idle == idle) return;
  Entry& entry = found->second;
  entry.idle = idle;
  entry.idle_at_beat = false;
  if (entry.in_set) {
    idle ? ++idle_in_set_ : --idle_in_set_;
    Wake();
  } else {
    const Pool pool;
    added_ = entry.in_set = SendIfAvailable<Message::kAddAllocation>(set_.get(), buffer);
  }
}

void Residency::Commit(bool removals_only) {
  const std::lock_guard lock(mutex_);
  if (!set_) return;
  if (!removals_only) {
    used_ = true;
    last_use_ = Clock::now();
    Wake();
  }
  if (removed_ || (added_ && !removals_only)) CommitLocked();
}

void Residency::CommitLocked() {
  const Pool pool;
  SendIfAvailable<Message::kCommitResidency>(set_.get());
  if (added_) SendIfAvailable<Message::kRequestResidency>(set_.get());
  added_ = removed_ = false;
}

void Residency::Beat() {
  const std::lock_guard lock(mutex_);
  if (set_) BeatLocked();
}

void Residency::BeatLocked() {
  const Pool pool;
  if (idle_in_set_ > 0) {
    for (auto& [buffer, entry] : entries_) {
      if (!entry.in_set || !entry.idle || !std::exchange(entry.idle_at_beat, true)) continue;
      removed_ = SendIfAvailable<Message::kRemoveAllocation>(set_.get(), buffer);
      entry.in_set = false;
      --idle_in_set_;
    }
  }
  const bool again = used_ && !added_;  // else it is asked for anyway
  if (removed_) CommitLocked();
  if (again && Clock::now() - last_use_ < kKeptAlive) SendIfAvailable<Message::kRequestResidency>(set_.get());
}

// A beat would do nothing.
bool Residency::Quiet() const {
  return !removed_ && idle_in_set_ == 0 && (!used_ || Clock::now() - last_use_ >= kKeptAlive);
}

// Costs nothing while it beats.
void Residency::Wake() {
  if (asleep_) changed_.notify_one();
}

void Residency::BeatWhileUsed() {
  std::unique_lock lock(mutex_);
  while (set_) {
    asleep_ = Quiet();
    changed_.wait(lock, [this] { return !set_ || !Quiet(); });
    asleep_ = false;
    const auto next = Clock::now() + kBeat;
    changed_.wait_until(lock, next, [&] { return !set_ || Clock::now() >= next; });
    if (set_) BeatLocked();
  }
}

void Residency::End() {
  {
    const std::lock_guard lock(mutex_);
    if (!set_) return;
    const Pool pool;
    SendIfAvailable<Message::kEndResidency>(set_.get());
    SendIfAvailable<Message::kRemoveResidencySet>(queue_.get(), set_.get());
    set_ = queue_ = Ref();
    entries_.clear();
    changed_.notify_one();
  }
  beats_.join();
}

}  // namespace pjrt_metal::metal
