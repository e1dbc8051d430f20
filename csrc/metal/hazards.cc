#include "csrc/metal/hazards.h"

#include <algorithm>

namespace pjrt_metal::metal {
namespace {

// More than this are not searched, which would cost more than the GPU gains from one barrier less:
// about 64 launches of four buffers.
constexpr size_t kMaxAccesses = 256;

bool Conflicts(const Access& one, const Access& other) {
  return (one.writes || other.writes) && one.begin < other.end && other.begin < one.end;
}

}  // namespace

bool Hazards::Conflict(std::span<const Access> accesses) const {
  if (since_barrier_.size() > kMaxAccesses) return true;
  return std::ranges::any_of(accesses, [this](const Access& access) {
    return std::ranges::any_of(since_barrier_, [&](const Access& earlier) { return Conflicts(access, earlier); });
  });
}

}  // namespace pjrt_metal::metal
