// Runs a grid of a kernel's threads, in turns, and stops at the first violation of Metal's rules.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "csrc/software/include/strict_abi.h"
#include "csrc/software/strict_fiber.h"
#include "csrc/software/strict_memory.h"

namespace pjrt_metal::software {

using ::software::Scope;
using ::software::StrictRuntime;

// Runs one thread. `position`: of the thread in the grid, of the group in the grid, of the thread in
// the group (three numbers each), lane in the SIMD group, SIMD group in the threadgroup, threads in
// the group, groups in the grid (three each).
constexpr size_t kPositionWords = 17;
using StrictFunction = void (*)(const StrictRuntime* runtime, void* const* buffers, const void* args,
                                const uint32_t* position);

struct StrictKernel {
  std::string name;
  StrictFunction run;
  uintptr_t image_begin, image_end;  // of the library that holds `run` and the constants it reads
  std::shared_ptr<const void> library;
};

// "kernel k_123"
std::string Describe(const StrictKernel& kernel);

// In which order threads that could run do, and threadgroups.
enum class Order { kForward, kBackward, kShuffled };
constexpr uint32_t kOrders = 3;
const char* Name(Order order);

class Machine {
 public:
  Machine();

  // Throws Internal that names the kernel, the thread and what is wrong.
  void Run(const StrictKernel& kernel, const Geometry& geometry, Memory& memory, const std::vector<void*>& buffers,
           const void* args, Order order);

 private:
  enum class State { kNew, kReady, kAtThreadgroupBarrier, kAtSimdgroupBarrier, kAtExchange, kDone };
  struct Thread {
    State state = State::kNew;
    size_t fiber = 0;
    Moment moment;
    // Where it waits, for what.
    int line = 0;
    uint32_t memory = 0;
    const char* function = nullptr;
    const void* value = nullptr;
    uint32_t bytes = 0;
  };
  struct Simdgroup {
    uint32_t lanes = 0, waiting = 0, done = 0;
    uint32_t active = 0;  // in the last exchange, whose values are:
    alignas(16) std::byte values[::software::kSimdWidth][::software::kExchangeBytes];
  };

  static const StrictRuntime kRuntime;
  static void FiberMain(void* machine);

  // On a thread's fiber.
  void RunThreads();
  void RunThread(uint32_t number);
  void Access(uintptr_t address, size_t bytes, ::software::Access access);
  void Barrier(Scope scope, uint32_t memory, int line);
  uint32_t Exchange(const char* function, const void* value, uint32_t bytes, void* values, uint32_t* lane, int line);
  void* ThreadgroupMemory(const char* name, size_t bytes, size_t alignment, int line);
  void* ThreadMemory(const char* name, size_t bytes, size_t alignment, int line);
  void Wait(State state, const char* function, int line);
  [[noreturn]] void Fail(const std::string& what);

  void RunGroup(uint32_t group);
  void Arrived(uint32_t number);
  void ReleaseThreadgroup();
  void ReleaseSimdgroup(uint32_t number);
  void MakeReady(uint32_t begin, uint32_t end);
  void CheckMeeting(uint32_t begin, uint32_t end);
  std::string Waiting(uint32_t number) const;
  std::string Divergence() const;
  Thread& current() { return threads_[current_]; }

  Fibers fibers_;
  std::vector<size_t> free_fibers_;
  std::vector<Thread> threads_;  // of the threadgroup that runs
  std::vector<Simdgroup> simdgroups_;
  std::vector<uint32_t> ready_;  // taken from the end
  uint32_t current_ = 0, at_barrier_ = 0, done_ = 0;
  std::optional<std::string> violation_;
  std::mt19937 random_;

  const StrictKernel* kernel_ = nullptr;
  const Geometry* geometry_ = nullptr;
  Memory* memory_ = nullptr;
  void* const* buffers_ = nullptr;
  const void* args_ = nullptr;
  Order order_ = Order::kForward;
  uint32_t group_ = 0;
};

}  // namespace pjrt_metal::software
