// Which allocations the system keeps resident for the GPU: MTLResidencySet (macOS 15).
#pragma once

#include <mutex>

#include "csrc/metal/objc.h"

namespace pjrt_metal::metal {

// One set with all of a device's own memory, attached to its queue, so that a submission need not make resident each
// of its buffers. Before macOS 15 it does nothing: binding a buffer makes it resident.
class Residency {
 public:
  Residency(Id device, Id queue);
  ~Residency() { End(); }
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  // What is added or removed counts from the next Commit, which is dear: one for
  // many. The set retains what it holds, so what was removed is freed by Commit.
  void Add(Id buffer);
  void Remove(Id buffer);
  // `removals_only`: only if there is memory to free.
  void Commit(bool removals_only = false);
  // The GPU needs none of it any more; everything later is ignored.
  void End();

 private:
  std::mutex mutex_;
  Ref queue_, set_;
  bool added_ = false, removed_ = false;
};

}  // namespace pjrt_metal::metal
