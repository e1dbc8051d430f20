// Which launches of a concurrent compute encoder must not overlap.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pjrt_metal::metal {

// Memory that a launch may access, by the host's addresses: memory that two buffers share (wrapped
// twice) is one memory here.
struct Access {
  uintptr_t begin, end;
  bool writes;
};

// What was accessed since the last barrier.
class Hazards {
 public:
  // Whether a launch with these accesses has to wait for one that was added before.
  bool Conflict(std::span<const Access> accesses) const;
  void Add(std::span<const Access> accesses) {
    since_barrier_.insert(since_barrier_.end(), accesses.begin(), accesses.end());
  }
  void Clear() { since_barrier_.clear(); }

 private:
  std::vector<Access> since_barrier_;
};

}  // namespace pjrt_metal::metal
