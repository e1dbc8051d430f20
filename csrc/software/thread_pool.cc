#include "csrc/software/thread_pool.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "csrc/runtime/log.h"

namespace pjrt_metal::software {
namespace {

// Chunks a thread gets on average: enough that one slow core does not hold up the rest.
constexpr uint64_t kChunksPerThread = 8;
// How long a thread spins before it sleeps. Waking it costs about as much (a futex call and a
// switch), and the launches of one program follow one another faster than that.
constexpr std::chrono::microseconds kSpin{50};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// True as soon as `ready` is; false after kSpin.
template <class Ready>
bool Spin(Ready ready) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {  // the clock is read about once in two microseconds
      if (ready()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

ThreadPool::~ThreadPool() {
  if (workers_.empty()) return;
  if (process_ != getpid()) {
    for (std::thread& worker : workers_) worker.detach();
    return;
  }
  stop_ = true;
  ++launches_;
  launches_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Start() {
  process_ = getpid();
  // Signals are the host program's business: its own threads take them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    while (workers_.size() + 1 < threads_) workers_.emplace_back([this] { WorkerLoop(); });
  } catch (const std::system_error& error) {
    // The caller and the workers there are do all of the work.
    LogPhase("software: threads", 0,
             std::to_string(workers_.size() + 1) + " instead of " + std::to_string(threads_) + ": " + error.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool ThreadPool::TakeChunk() {
  uint32_t left = left_.load(std::memory_order_relaxed);
  do {
    if (left == 0) return false;
  } while (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire, std::memory_order_relaxed));
  const uint64_t chunk = chunks_ - left;
  // By quotient and rest: count * chunk could overflow.
  const uint64_t size = count_ / chunks_, rest = count_ % chunks_;
  const uint64_t begin = chunk * size + std::min(chunk, rest);
  work_(context_, begin, begin + size + (chunk < rest ? 1 : 0));
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  return true;
}

void ThreadPool::WorkerLoop() {
  while (!stop_) {
    while (TakeChunk()) {
    }
    if (Spin([this] { return left_.load(std::memory_order_relaxed) != 0 || stop_; })) continue;
    // Either Run sees this sleeper after it has published its chunks, or the sleeper sees the
    // chunks.
    ++sleepers_;
    const uint32_t seen = launches_;
    if (left_ == 0 && !stop_) launches_.wait(seen);
    --sleepers_;
  }
}

void ThreadPool::Run(Work work, const void* context, uint64_t count) {
  std::unique_lock lock(run_mutex_, std::try_to_lock);
  if (count < 2 || threads_ == 1 || !lock) {
    work(context, 0, count);
    return;
  }
  if (workers_.empty()) Start();
  work_ = work;
  context_ = context;
  count_ = count;
  chunks_ = static_cast<uint32_t>(std::min(count, threads_ * kChunksPerThread));
  pending_ = chunks_;
  left_ = chunks_;
  ++launches_;
  if (sleepers_ > 0) {
    // A large machine's workers need not all wake for a few chunks; the caller takes one.
    if (chunks_ >= threads_) {
      launches_.notify_all();
    } else {
      for (uint32_t i = 1; i < chunks_; ++i) launches_.notify_one();
    }
  }
  while (TakeChunk()) {
  }
  // Only chunks that a worker has taken are waited for, so workers that never come (after a fork)
  // hold up nothing.
  if (Spin([this] { return pending_.load(std::memory_order_acquire) == 0; })) return;
  while (const uint32_t pending = pending_.load(std::memory_order_acquire)) pending_.wait(pending);
}

}  // namespace pjrt_metal::software
