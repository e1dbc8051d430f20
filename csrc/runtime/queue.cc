#include "csrc/runtime/queue.h"

#include <utility>

namespace pjrt_metal {

namespace {

thread_local const Queue::Nested* innermost = nullptr;

}  // namespace

Queue::Queue() = default;

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Queue::Submit(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  if (nested_ == std::this_thread::get_id()) {
    lock.unlock();
    return task();
  }
  tasks_.push_back(std::move(task));
  // Started late, so that a process that only ever runs small programs has no thread to fork around.
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  wake_.notify_one();
}

bool Queue::BeginInline() {
  const std::lock_guard lock(mutex_);
  if (running_ || !tasks_.empty()) return false;
  running_ = true;
  runner_ = std::this_thread::get_id();
  return true;
}

void Queue::EndInline() {
  const std::lock_guard lock(mutex_);
  running_ = false;
  runner_ = {};
  if (!tasks_.empty()) wake_.notify_one();
  idle_.notify_all();
}

bool Queue::RunsHere() const {
  const std::lock_guard lock(mutex_);
  return runner_ == std::this_thread::get_id();
}

void Queue::Drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return tasks_.empty() && !running_; });
}

bool Queue::CallsHostHere(const Queue* queue) {
  for (const Nested* nested = innermost; nested != nullptr; nested = nested->outer_) {
    if (&nested->queue_ == queue) return true;
  }
  return false;
}

Queue::Nested::Nested(Queue& queue) : queue_(queue), outer_(std::exchange(innermost, this)) {
  const std::lock_guard lock(queue_.mutex_);
  before_ = std::exchange(queue_.nested_, std::this_thread::get_id());
}

Queue::Nested::~Nested() {
  innermost = outer_;
  const std::lock_guard lock(queue_.mutex_);
  queue_.nested_ = before_;
}

void Queue::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return (!tasks_.empty() && !running_) || (stop_ && tasks_.empty()); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    running_ = true;
    runner_ = std::this_thread::get_id();
    lock.unlock();
    task();
    task = nullptr;  // what it holds is released outside the lock
    lock.lock();
    running_ = false;
    runner_ = {};
    idle_.notify_all();
  }
}

}  // namespace pjrt_metal
