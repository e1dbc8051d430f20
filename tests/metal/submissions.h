// What tests of submissions share: the order in which they end, and checks that count command buffers.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "tests/metal/fixture.h"

namespace pjrt_metal::metal {

// What submissions' `done` was called with, in order.
class Log {
 public:
  std::function<void(std::optional<Error>)> Entry(int number) {
    return [this, number](std::optional<Error> error) {
      const std::lock_guard lock(mutex_);
      done_.push_back(number);
      if (error) errors_.push_back(*error);
      changed_.notify_all();
    };
  }
  std::vector<int> Wait(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.size() >= count; });
    return done_;
  }
  bool InOrder(size_t count) {
    const std::vector<int> done = Wait(count);
    return done.size() == count && std::ranges::is_sorted(done);
  }
  std::vector<Error> errors() {
    const std::lock_guard lock(mutex_);
    return errors_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> done_;
  std::vector<Error> errors_;
};

// While the GPU is paused, what is submitted within a batch's age stays in one.
class Paused {
 public:
  Paused() { FakePause(1); }
  ~Paused() {
    prompt = std::chrono::steady_clock::now() - begin_ < std::chrono::microseconds(400);
    FakePause(0);
  }
  static inline bool prompt = true;  // the last one was short enough for that

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Runs a check that counts command buffers; again, if this machine was too slow for the counts to hold.
template <void (*check)()>
void Promptly() {
  for (int left = 100;; --left) {
    try {
      return check();
    } catch (const std::logic_error&) {
      if (Paused::prompt || left == 0) throw;
    }
  }
}

inline void Submit(Fixture& f, Log& log, int number, int launches = 1) {
  auto encoder = f.device->NewEncoder();
  for (int i = 0; i < launches; ++i) f.Add(*encoder, static_cast<float>(number));
  encoder->Commit(log.Entry(number));
}

}  // namespace pjrt_metal::metal
