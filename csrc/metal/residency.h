// Which allocations the system keeps resident for the GPU: MTLResidencySet (macOS 15).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "csrc/metal/objc.h"

namespace pjrt_metal::metal {

// One set with all of a device's own memory that is in use, attached to its queue, so that a submission need not make
// resident each of its buffers. Memory that is only kept for later leaves the set after a while: the system may have
// its pages. The system may also give up a set that was asked for once and not used for about a second
// (ggml-org/llama.cpp#17766), so it is asked for again while there are submissions. Before macOS 15, and with
// PJRT_METAL_RESIDENCY=0, it does nothing: binding a buffer makes it resident.
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
  // Nobody uses the buffer any more, or again.
  void SetIdle(Id buffer, bool idle);
  // A submission is to begin. `removals_only`: only if there is memory to free.
  void Commit(bool removals_only = false);
  // What was idle at the last beat and still is leaves the set; the rest is asked for again, if there was a submission
  // within a minute. A thread calls it twice a second while there is something to do.
  void Beat();
  // The GPU needs none of it any more; everything later is ignored.
  void End();

 private:
  struct Entry {
    bool in_set = true, idle = false;
    bool idle_at_beat = false;
  };
  using Clock = std::chrono::steady_clock;

  void CommitLocked();
  void BeatLocked();
  bool Quiet() const;
  void Wake();
  void BeatWhileUsed();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread beats_;
  Ref queue_, set_;
  std::unordered_map<Id, Entry> entries_;
  size_t idle_in_set_ = 0;
  bool added_ = false, removed_ = false;
  bool used_ = false;    // since the device was made
  bool asleep_ = false;  // the thread waits until there is something to do
  Clock::time_point last_use_;
};

}  // namespace pjrt_metal::metal
