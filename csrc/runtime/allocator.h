// A caching allocator over one device: size classes, a limit, statistics, and errors that say who holds what.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "csrc/runtime/device.h"

namespace pjrt_metal {

struct MemoryStats {
  int64_t bytes_in_use = 0, peak_bytes_in_use = 0, num_allocs = 0, largest_alloc_size = 0, bytes_limit = 0;
  int64_t bytes_reserved = 0, peak_bytes_reserved = 0, pool_bytes = 0, peak_pool_bytes = 0;
};

class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  // `limit`: bytes this process may hold (in use and cached together).
  Allocator(Device* device, uint64_t limit);
  // Memory that returns to the cache when the last reference goes. `tag` names the holder in an
  // out-of-memory report ("argument", "output of jit_f", "arena of jit_f"). Throws ResourceExhausted
  // with a table of the largest holders.
  AllocationRef Allocate(size_t bytes, const std::string& tag);
  MemoryStats stats() const;
  void ReleaseCached();
  // Whether memory that holds nothing holds bytes of 0xff (PJRT_METAL_POISON), which are NaN, -1 or true: what nobody
  // wrote shows.
  bool poisons() const { return poisons_; }

 private:
  class Block;
  struct Holder {
    uint64_t bytes = 0;
    int64_t count = 0;
  };

  struct Cached {
    AllocationRef memory;
    uint64_t number;  // of its return: the lowest is the oldest
  };

  AllocationRef AllocateNew(size_t size, const std::string& tag, std::unique_lock<std::mutex>& lock);
  std::string Report(size_t size, const std::string& tag) const;
  void Return(AllocationRef memory, const std::string& tag);
  void Poison(const Allocation& memory) const;
  void DropCached();
  void DropOldest();

  Device* device_;
  const bool poisons_;
  mutable std::mutex mutex_;
  MemoryStats stats_;
  std::unordered_map<size_t, std::deque<Cached>> free_;  // by size, the oldest first
  uint64_t returns_ = 0;
  std::unordered_map<std::string, Holder> holders_;  // by tag
};

}  // namespace pjrt_metal
