// Stacks that run on one OS thread in turns, for the threads of a threadgroup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pjrt_metal::software {

class Fibers {
 public:
  // Each fiber calls entry(context), which must not return, when it is first switched to.
  Fibers(size_t count, void (*entry)(void*), void* context);
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;
  ~Fibers();

  // From the caller's stack to the fiber's, until that calls Leave.
  void Enter(size_t fiber);
  // From the fiber that runs back to Enter's caller, until it is entered again (or never).
  void Leave();
  // Every fiber begins anew when it is next entered. Not to be called from a fiber.
  void Reset();
  // Whether the memory is part of the fiber's stack.
  bool OnStack(size_t fiber, uintptr_t address, size_t bytes) const;

 private:
  struct Start {
    void (*entry)(void*);
    void* context;
  };
  static void Main(Start* start);

  Start start_;
  std::byte* memory_;
  size_t bytes_;
  std::vector<void*> stack_pointers_;  // where each fiber stopped
  void* outside_ = nullptr;            // where Enter's caller stopped
  size_t running_ = 0;
};

}  // namespace pjrt_metal::software
