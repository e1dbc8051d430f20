// Runs one kernel launch on several threads: the caller and workers that spin for a moment, then
// sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace pjrt_metal::software {

class ThreadPool {
 public:
  using Work = void (*)(const void* context, uint64_t begin, uint64_t end);

  // `threads` counts the caller. Workers start with the first Run.
  explicit ThreadPool(uint32_t threads) : threads_(threads) {}
  ~ThreadPool();

  uint32_t threads() const { return threads_; }

  // Calls work(context, begin, end) for ranges that together are 0..count, each once, at the same
  // time on several threads; returns when all are done. If another thread is in Run, everything
  // runs here.
  void Run(Work work, const void* context, uint64_t count);

 private:
  void Start();
  void WorkerLoop();
  bool TakeChunk();

  const uint32_t threads_;
  std::mutex run_mutex_;  // held by the thread whose launch the workers see
  std::vector<std::thread> workers_;
  int process_ = 0;  // that the workers live in: a child after fork has none

  // The launch. Written only while no chunk is left or being worked on, and published by `left_`:
  // whoever has taken a chunk may read them, since the launch cannot end before that chunk does.
  Work work_ = nullptr;
  const void* context_ = nullptr;
  uint64_t count_ = 0;
  uint32_t chunks_ = 0;

  alignas(64) std::atomic<uint32_t> left_{0};      // chunks nobody has taken
  alignas(64) std::atomic<uint32_t> pending_{0};   // chunks that are not done
  alignas(64) std::atomic<uint32_t> launches_{0};  // sleeping workers wait for it to change
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
};

}  // namespace pjrt_metal::software
