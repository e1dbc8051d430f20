#include "csrc/pjrt/handle.h"

#include <cstdint>
#include <new>
#include <utility>

namespace pjrt_metal {

void* HandlePool::Take() {
  Header* header = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (resting_ > kResting) {
      header = std::exchange(oldest_, oldest_->next);
      --resting_;
    }
  }
  if (header == nullptr) header = new (::operator new(sizeof(Header) + bytes_)) Header;
  header->owner.store(this, std::memory_order_relaxed);
  return header + 1;
}

void HandlePool::Give(void* object) noexcept {
  Header* const header = static_cast<Header*>(object) - 1;
  header->owner.store(nullptr, std::memory_order_relaxed);
  header->next = nullptr;
  const std::lock_guard lock(mutex_);
  (resting_ == 0 ? oldest_ : newest_->next) = header;
  newest_ = header;
  ++resting_;
}

bool HandlePool::Owns(const void* object) const {
  if (reinterpret_cast<uintptr_t>(object) % alignof(Header) != 0) return false;
  return (static_cast<const Header*>(object) - 1)->owner.load(std::memory_order_relaxed) == this;
}

}  // namespace pjrt_metal
