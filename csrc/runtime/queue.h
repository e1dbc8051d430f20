// The submission queue of one logical device: tasks run in order on one thread; a small task on an idle
// queue runs inline on the caller's thread, which saves two context switches.
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
  // `task` must not throw.
  void Submit(std::function<void()> task, bool may_run_inline);
  void Drain();  // returns when everything submitted before has run

 private:
  void Loop();
  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::function<void()>> tasks_;
  bool running_ = false, stop_ = false;
  std::thread thread_;
};

}  // namespace pjrt_metal
