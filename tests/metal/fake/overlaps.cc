#include "tests/metal/fake/overlaps.h"

#include <algorithm>

using pjrt_metal::software::Touched;

namespace pjrt_metal::fake {
namespace {

struct Launch {
  std::string kernel;
  std::vector<Touched> touched;  // sorted, disjoint
};
std::vector<Launch> phase;

// The first bytes of `touched` that one launch writes and the other accesses, or nullptr.
const Touched* Conflict(const std::vector<Touched>& touched, const std::vector<Touched>& other) {
  for (size_t i = 0, j = 0; i < touched.size() && j < other.size();) {
    const bool apart = touched[i].end <= other[j].begin || other[j].end <= touched[i].begin;
    if (!apart && (touched[i].written || other[j].written)) return &touched[i];
    if (touched[i].end < other[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return nullptr;
}

}  // namespace

std::string AddToPhase(const std::string& kernel, std::vector<Touched> touched) {
  std::ranges::sort(touched, {}, &Touched::begin);
  std::string wrong;
  for (const Launch& earlier : phase) {
    const Touched* bytes = Conflict(touched, earlier.touched);
    if (bytes == nullptr) continue;
    wrong = kernel + (bytes->written ? ": writes " : ": reads ") + std::to_string(bytes->end - bytes->begin) +
            " bytes that " + earlier.kernel + " accesses at the same time: no barrier is between them";
    break;
  }
  phase.push_back({kernel, std::move(touched)});
  return wrong;
}

void NewPhase() { phase.clear(); }

}  // namespace pjrt_metal::fake
