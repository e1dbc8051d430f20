// The submission queue of one logical device: tasks run in order on one thread; a small task on an idle
// queue may run on the caller's thread instead, which saves two context switches.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace pjrt_metal {

class Queue {
 public:
  Queue();
  ~Queue();  // runs what is queued, then joins
  // Tasks must not throw.
  void Submit(std::function<void()> task);
  // Runs `task` now, on this thread, if nothing is queued or running; else returns false.
  template <class Task>
  bool TryRunInline(Task&& task) {
    if (!BeginInline()) return false;
    task();
    EndInline();
    return true;
  }
  void Drain();  // returns when everything submitted before has run

 private:
  bool BeginInline();
  void EndInline();
  void Loop();

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::function<void()>> tasks_;
  bool running_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace pjrt_metal
