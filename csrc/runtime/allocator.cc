#include "csrc/runtime/allocator.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <sstream>

#include "csrc/runtime/environment.h"

namespace pjrt_metal {
namespace {

constexpr size_t kSmallest = 256;
// How many of the largest holders an out-of-memory report lists.
constexpr size_t kReported = 8;
// The cache has at most this part of the limit, beside what was returned last.
constexpr int64_t kCacheShare = 2;

// Four classes an octave: at most a quarter is wasted, and buffers of similar size share a free list.
size_t RoundUp(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  const size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

std::string Megabytes(uint64_t bytes) {
  std::ostringstream text;
  text.precision(1);
  text << std::fixed << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return text.str();
}

}  // namespace

// Hands its memory back to the allocator, which outlives it.
class Allocator::Block : public Allocation {
 public:
  Block(std::shared_ptr<Allocator> owner, AllocationRef memory, size_t size, const std::string& tag)
      : Allocation(memory->data(), size), owner_(std::move(owner)), memory_(std::move(memory)), tag_(tag) {}
  ~Block() override { owner_->Return(std::move(memory_), tag_); }
  Allocation* device_allocation() override { return memory_->device_allocation(); }

 private:
  std::shared_ptr<Allocator> owner_;
  AllocationRef memory_;
  std::string tag_;
};

Allocator::Allocator(Device* device, uint64_t limit) : device_(device), poisons_(environment::Poison()) {
  stats_.bytes_limit = static_cast<int64_t>(limit);
}

AllocationRef Allocator::Allocate(size_t bytes, const std::string& tag) {
  const auto self = shared_from_this();
  const size_t maximum = device_->info().max_buffer_bytes;
  if (bytes > maximum) {
    throw ResourceExhausted("an array of " + Megabytes(bytes) + " for " + tag +
                            " exceeds the device's largest buffer, " + Megabytes(maximum));
  }
  const size_t size = RoundUp(bytes);
  std::unique_lock lock(mutex_);
  AllocationRef memory;
  auto& cached = free_[size];
  const bool is_new = cached.empty();
  if (!is_new) {
    memory = std::move(cached.back().memory);
    cached.pop_back();
    memory->SetIdle(false);
    stats_.pool_bytes -= static_cast<int64_t>(size);
  } else {
    memory = AllocateNew(size, tag, lock);
  }
  stats_.bytes_in_use += static_cast<int64_t>(size);
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  stats_.peak_bytes_reserved = std::max(stats_.peak_bytes_reserved, stats_.bytes_in_use + stats_.pool_bytes);
  stats_.largest_alloc_size = std::max(stats_.largest_alloc_size, static_cast<int64_t>(bytes));
  ++stats_.num_allocs;
  auto& holder = holders_[tag];
  holder.bytes += size;
  ++holder.count;
  lock.unlock();
  // What is in the cache was poisoned when it came.
  if (is_new) Poison(*memory);
  return std::make_shared<Block>(self, std::move(memory), size, tag);
}

AllocationRef Allocator::AllocateNew(size_t size, const std::string& tag, std::unique_lock<std::mutex>& lock) {
  const auto fits = [&] {
    return stats_.bytes_in_use + stats_.pool_bytes + static_cast<int64_t>(size) <= stats_.bytes_limit;
  };
  std::string refusal;
  if (!fits()) DropCached();
  if (fits()) {
    try {
      return device_->Allocate(size);
    } catch (const Error& error) {
      if (error.code() != Code::kResourceExhausted) throw;
      DropCached();
      try {
        return device_->Allocate(size);
      } catch (const Error& second) {
        refusal = std::string("\n") + second.what();
      }
    }
  }
  const std::string report = Report(size, tag) + refusal;
  lock.unlock();
  throw ResourceExhausted(report);
}

std::string Allocator::Report(size_t size, const std::string& tag) const {
  std::vector<std::pair<std::string, Holder>> holders(holders_.begin(), holders_.end());
  std::sort(holders.begin(), holders.end(),
            [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::ostringstream text;
  text << "out of memory: " << Megabytes(size) << " for " << tag << " with "
       << Megabytes(static_cast<uint64_t>(stats_.bytes_in_use)) << " in use of a limit of "
       << Megabytes(static_cast<uint64_t>(stats_.bytes_limit)) << ". The largest holders:";
  for (size_t i = 0; i < std::min(holders.size(), kReported); ++i) {
    if (holders[i].second.bytes == 0) break;
    text << "\n  " << Megabytes(holders[i].second.bytes) << " in " << holders[i].second.count
         << " arrays: " << holders[i].first;
  }
  text << "\nTry a smaller batch, donate arguments that are not needed again, or delete arrays.";
  return text.str();
}

void Allocator::Poison(const Allocation& memory) const {
  if (poisons_) std::memset(memory.data(), 0xff, memory.size());
}

void Allocator::Return(AllocationRef memory, const std::string& tag) {
  const size_t size = memory->size();
  Poison(*memory);  // nobody uses it, and nobody can ask for it yet
  const std::lock_guard lock(mutex_);
  stats_.bytes_in_use -= static_cast<int64_t>(size);
  stats_.pool_bytes += static_cast<int64_t>(size);
  stats_.peak_pool_bytes = std::max(stats_.peak_pool_bytes, stats_.pool_bytes);
  auto& holder = holders_[tag];
  holder.bytes -= size;
  --holder.count;
  memory->SetIdle(true);
  free_[size].push_back({std::move(memory), returns_++});
  // At least what was returned last is kept: it may be the arena of a program that runs again and again.
  while (stats_.pool_bytes > stats_.bytes_limit / kCacheShare && stats_.pool_bytes > static_cast<int64_t>(size)) {
    DropOldest();
  }
}

void Allocator::DropOldest() {
  auto oldest = free_.end();
  for (auto cached = free_.begin(); cached != free_.end(); ++cached) {
    if (cached->second.empty()) continue;
    if (oldest == free_.end() || cached->second.front().number < oldest->second.front().number) oldest = cached;
  }
  stats_.pool_bytes -= static_cast<int64_t>(oldest->first);
  oldest->second.pop_front();
}

void Allocator::DropCached() {
  free_.clear();
  stats_.pool_bytes = 0;
}

MemoryStats Allocator::stats() const {
  const std::lock_guard lock(mutex_);
  MemoryStats stats = stats_;
  stats.bytes_reserved = stats.bytes_in_use + stats.pool_bytes;
  return stats;
}

void Allocator::ReleaseCached() {
  const std::lock_guard lock(mutex_);
  DropCached();
}

}  // namespace pjrt_metal
