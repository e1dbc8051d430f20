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
  void Drain();           // returns when everything submitted before has run
  bool RunsHere() const;  // this thread is in one of the tasks

  // This thread is in host code that a task of the queue calls (see Nested). `queue` may be gone.
  static bool CallsHostHere(const Queue* queue);

  // While one lives, what its thread submits runs at once: a task that calls the host's code, which may itself submit
  // tasks and wait for them, would otherwise wait for itself.
  class Nested {
   public:
    explicit Nested(Queue& queue);
    ~Nested();
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    friend class Queue;
    Queue& queue_;
    std::thread::id before_;
    const Nested* outer_;  // of this thread
  };

 private:
  bool BeginInline();
  void EndInline();
  void Loop();

  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<std::function<void()>> tasks_;
  bool running_ = false, stop_ = false;
  std::thread::id runner_;  // the running task's
  std::thread::id nested_;  // whose tasks run at once
  std::thread thread_;
};

}  // namespace pjrt_metal
