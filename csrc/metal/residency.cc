#include "csrc/metal/residency.h"

#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {

Residency::Residency(Id device, Id queue) : queue_(Ref::Retain(queue)) {
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
}

void Residency::Add(Id buffer) {
  const std::lock_guard lock(mutex_);
  if (!set_) return;
  added_ = SendIfAvailable<Message::kAddAllocation>(set_.get(), buffer);
}

void Residency::Remove(Id buffer) {
  const std::lock_guard lock(mutex_);
  if (!set_) return;
  const Pool pool;  // memory is given up on any thread
  removed_ = SendIfAvailable<Message::kRemoveAllocation>(set_.get(), buffer);
}

void Residency::Commit(bool removals_only) {
  const std::lock_guard lock(mutex_);
  if (!set_ || !(removed_ || (added_ && !removals_only))) return;
  const Pool pool;
  SendIfAvailable<Message::kCommitResidency>(set_.get());
  if (added_) SendIfAvailable<Message::kRequestResidency>(set_.get());
  added_ = removed_ = false;
}

void Residency::End() {
  const std::lock_guard lock(mutex_);
  if (!set_) return;
  const Pool pool;
  SendIfAvailable<Message::kEndResidency>(set_.get());
  SendIfAvailable<Message::kRemoveResidencySet>(queue_.get(), set_.get());
  set_ = queue_ = Ref();
}

}  // namespace pjrt_metal::metal
