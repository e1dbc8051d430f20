#include "csrc/software/strict_machine.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "csrc/runtime/error.h"
#include "csrc/software/denormals.h"

namespace pjrt_metal::software {
namespace {

constexpr size_t kMaxThreads = 1024;
constexpr uint32_t kSeed = 20240607;  // of the shuffled order: any

// The one that runs: kernels call functions, which have no object. Machines run one at a time.
Machine* machine = nullptr;

const char* Verb(::software::Access access) {
  switch (access) {
    case ::software::Access::kRead:
      return " reads ";
    case ::software::Access::kWrite:
      return " writes ";
    case ::software::Access::kAtomicRead:
      return " atomically reads ";
    case ::software::Access::kAtomicWrite:
      return " atomically writes ";
    case ::software::Access::kAtomicUpdate:
      return " atomically updates ";
  }
  return " accesses ";
}

std::string Line(int line) { return " at line " + std::to_string(line); }

template <class T>
void Arrange(T begin, T end, Order order, std::mt19937& random) {
  if (order == Order::kBackward) std::reverse(begin, end);
  if (order == Order::kShuffled) std::shuffle(begin, end, random);
}

}  // namespace

const char* Name(Order order) {
  constexpr const char* kNames[] = {"forward", "backward", "shuffled"};
  return kNames[static_cast<int>(order)];
}

std::string Describe(const StrictKernel& kernel) { return "kernel " + kernel.name; }

const StrictRuntime Machine::kRuntime = {
    [](const void* address, unsigned long bytes, ::software::Access access) {
      machine->Access(reinterpret_cast<uintptr_t>(address), bytes, access);
    },
    [](Scope scope, unsigned memory, int line) { machine->Barrier(scope, memory, line); },
    [](const char* function, const void* value, unsigned bytes, void* values, unsigned* lane, int line) -> unsigned {
      return machine->Exchange(function, value, bytes, values, lane, line);
    },
    [](const char* name, unsigned long bytes, unsigned long alignment, int line) {
      return machine->ThreadgroupMemory(name, bytes, alignment, line);
    },
    [](const char* name, unsigned long bytes, unsigned long alignment, int line) {
      return machine->ThreadMemory(name, bytes, alignment, line);
    },
    [](const char* function, const char* message, int line) {
      machine->Fail(": " + std::string(function) + Line(line) + " " + message);
    },
};

Machine::Machine() : fibers_(kMaxThreads, &Machine::FiberMain, this) {}

void Machine::FiberMain(void* self) { static_cast<Machine*>(self)->RunThreads(); }

void Machine::Run(const StrictKernel& kernel, const Geometry& geometry, Memory& memory,
                  const std::vector<void*>& buffers, const void* args, Order order) {
  const FlushDenormals flush;  // fibers are this thread's
  machine = this;
  kernel_ = &kernel;
  geometry_ = &geometry;
  memory_ = &memory;
  buffers_ = buffers.data();
  args_ = args;
  order_ = order;
  random_.seed(kSeed);
  violation_.reset();
  std::vector<uint32_t> groups(geometry.group_count());
  std::iota(groups.begin(), groups.end(), 0u);
  Arrange(groups.begin(), groups.end(), order, random_);
  for (const uint32_t group : groups) RunGroup(group);
}

void Machine::RunGroup(uint32_t group) {
  const auto size = geometry_->GroupSize(group);
  const uint32_t count = size[0] * size[1] * size[2];
  group_ = group;
  threads_.assign(count, {});
  simdgroups_.resize((count + ::software::kSimdWidth - 1) / ::software::kSimdWidth);
  for (uint32_t i = 0; i < simdgroups_.size(); ++i) {
    Simdgroup& simdgroup = simdgroups_[i];
    simdgroup.lanes = std::min(::software::kSimdWidth, count - i * ::software::kSimdWidth);
    simdgroup.waiting = simdgroup.done = 0;
  }
  for (uint32_t i = 0; i < count; ++i) {
    threads_[i].moment.group = group;
    threads_[i].moment.thread = i;
  }
  free_fibers_.resize(count);
  std::iota(free_fibers_.rbegin(), free_fibers_.rend(), size_t{0});
  at_barrier_ = done_ = 0;
  ready_.clear();
  MakeReady(0, count);
  while (!ready_.empty() && !violation_) {
    current_ = ready_.back();
    ready_.pop_back();
    Thread& thread = current();
    if (thread.state == State::kNew) {
      thread.fiber = free_fibers_.back();
      free_fibers_.pop_back();
    }
    fibers_.Enter(thread.fiber);
  }
  if (!violation_ && done_ < count) violation_ = Divergence();
  if (violation_) {
    fibers_.Reset();
    throw Internal(Describe(*kernel_) + ": " + *violation_ + " [strict software Metal, threads run " + Name(order_) +
                   "]");
  }
}

// Threads follow one another on a fiber as long as none of them waits: kernels without barriers
// need no switches.
void Machine::RunThreads() {
  for (;;) {
    const size_t fiber = current().fiber;
    RunThread(current_);
    Thread& finished = current();
    finished.state = State::kDone;
    ++done_;
    ++simdgroups_[current_ / ::software::kSimdWidth].done;
    Arrived(current_);
    if (!violation_ && !ready_.empty() && threads_[ready_.back()].state == State::kNew) {
      current_ = ready_.back();
      ready_.pop_back();
      current().fiber = fiber;
      continue;
    }
    free_fibers_.push_back(fiber);
    fibers_.Leave();
    // Entered again: for the thread that is current now.
  }
}

void Machine::RunThread(uint32_t number) {
  const auto size = geometry_->GroupSize(group_);
  const auto group = geometry_->GroupPosition(group_);
  const auto in_group = Position(number, size);
  uint32_t position[kPositionWords];
  for (int axis = 0; axis < 3; ++axis) {
    position[axis] = group[axis] * geometry_->per_group[axis] + in_group[axis];
    position[3 + axis] = group[axis];
    position[6 + axis] = in_group[axis];
    position[11 + axis] = size[axis];
    position[14 + axis] = geometry_->groups[axis];
  }
  position[9] = number % ::software::kSimdWidth;
  position[10] = number / ::software::kSimdWidth;
  current().state = State::kReady;
  kernel_->run(&kRuntime, buffers_, args_, position);
}

void Machine::Fail(const std::string& what) {
  violation_ = geometry_->Describe(group_, current_) + what;
  fibers_.Leave();
  __builtin_trap();  // an abandoned thread was resumed
}

void Machine::Access(uintptr_t address, size_t bytes, ::software::Access access) {
  if (!memory_->Contains(address)) {
    if (fibers_.OnStack(current().fiber, address, bytes)) return;
    if (address >= kernel_->image_begin && address < kernel_->image_end) return;
    Fail(Verb(access) + std::to_string(bytes) + " bytes, which is out of bounds of everything the kernel was given");
  }
  const std::string wrong = memory_->Check(address, bytes, access, current().moment);
  if (!wrong.empty()) Fail(Verb(access) + memory_->Describe(address, bytes, access) + wrong);
}

void* Machine::ThreadgroupMemory(const char* name, size_t bytes, size_t alignment, int line) {
  void* memory = memory_->Threadgroup(name, line, bytes, alignment);
  if (memory != nullptr) return memory;
  Fail(" declares threadgroup memory " + std::string(name) + Line(line) + ", with which the kernel has " +
       std::to_string(memory_->threadgroup_bytes()) + " bytes of it; Apple GPUs have " +
       std::to_string(kMaxThreadgroupBytes));
}

void* Machine::ThreadMemory(const char* name, size_t bytes, size_t alignment, int line) {
  void* memory = memory_->ThreadArray(name, line, bytes, alignment, group_);
  if (memory != nullptr) return memory;
  Fail(" declares array " + std::string(name) + Line(line) + ", with which the thread has more than " +
       std::to_string(kMaxThreadBytes) + " bytes of them on its stack");
}

void Machine::Wait(State state, const char* function, int line) {
  Thread& thread = current();
  thread.state = state;
  thread.function = function;
  thread.line = line;
  const uint32_t number = current_;
  if (state == State::kAtThreadgroupBarrier) {
    ++at_barrier_;
  } else {
    ++simdgroups_[number / ::software::kSimdWidth].waiting;
  }
  Arrived(number);
  fibers_.Leave();
}

void Machine::Barrier(Scope scope, uint32_t memory, int line) {
  current().memory = memory;
  if (scope == Scope::kThreadgroup) {
    Wait(State::kAtThreadgroupBarrier, "threadgroup_barrier", line);
  } else {
    Wait(State::kAtSimdgroupBarrier, "simdgroup_barrier", line);
  }
  Moment& moment = current().moment;
  for (int i = 0; i < 2; ++i) {
    const bool fences = (memory & (i == 0 ? ::software::kDeviceMemory : ::software::kThreadgroupMemory)) != 0;
    moment.barriers[0][i] += fences && scope == Scope::kThreadgroup;
    moment.barriers[1][i] += fences;
    if (moment.barriers[1][i] >= kMaxBarriers) Fail(" passes more barriers than the strict device can record");
  }
}

uint32_t Machine::Exchange(const char* function, const void* value, uint32_t bytes, void* values, uint32_t* lane,
                           int line) {
  current().memory = 0;
  current().value = value;
  current().bytes = bytes;
  Wait(State::kAtExchange, function, line);
  const Simdgroup& simdgroup = simdgroups_[current_ / ::software::kSimdWidth];
  for (uint32_t i = 0; i < ::software::kSimdWidth; ++i) {
    std::memcpy(static_cast<std::byte*>(values) + i * bytes, simdgroup.values[i], bytes);
  }
  *lane = current_ % ::software::kSimdWidth;
  return simdgroup.active;
}

// A thread has stopped: somewhere all that must meet may have.
void Machine::Arrived(uint32_t number) {
  const auto count = static_cast<uint32_t>(threads_.size());
  if (at_barrier_ == count) ReleaseThreadgroup();
  Simdgroup& simdgroup = simdgroups_[number / ::software::kSimdWidth];
  if (simdgroup.waiting > 0 && simdgroup.waiting + simdgroup.done == simdgroup.lanes) {
    ReleaseSimdgroup(number / ::software::kSimdWidth);
  }
}

void Machine::ReleaseThreadgroup() {
  CheckMeeting(0, at_barrier_);
  if (!violation_) MakeReady(0, at_barrier_);
  at_barrier_ = 0;
}

void Machine::ReleaseSimdgroup(uint32_t number) {
  Simdgroup& simdgroup = simdgroups_[number];
  const uint32_t begin = number * ::software::kSimdWidth, end = begin + simdgroup.lanes;
  CheckMeeting(begin, end);
  if (violation_) return;
  simdgroup.active = 0;
  for (uint32_t i = begin; i < end; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state != State::kAtExchange) continue;
    simdgroup.active |= 1u << (i - begin);
    std::memcpy(simdgroup.values[i - begin], thread.value, thread.bytes);
  }
  simdgroup.waiting = 0;
  MakeReady(begin, end);
}

// All that wait among the threads must do so at one place. Those that have ended are inactive lanes,
// which barriers do not allow.
void Machine::CheckMeeting(uint32_t begin, uint32_t end) {
  const Thread* first = nullptr;
  for (uint32_t i = begin; i < end; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == State::kDone) continue;
    if (first == nullptr) first = &thread;
    if (thread.line == first->line && thread.memory == first->memory &&
        std::strcmp(thread.function, first->function) == 0) {
      continue;
    }
    violation_ = "barrier divergence: " + Waiting(first->moment.thread) + ", " + Waiting(i);
    return;
  }
  if (first->state != State::kAtSimdgroupBarrier) return;
  for (uint32_t i = begin; i < end; ++i) {
    if (threads_[i].state == State::kDone) violation_ = Divergence();
  }
}

void Machine::MakeReady(uint32_t begin, uint32_t end) {
  const auto old = static_cast<ptrdiff_t>(ready_.size());
  for (uint32_t i = end; i-- > begin;) {
    Thread& thread = threads_[i];
    if (thread.state == State::kDone) continue;
    if (thread.state != State::kNew) thread.state = State::kReady;
    ready_.push_back(i);
  }
  Arrange(ready_.begin() + old, ready_.end(), order_, random_);
}

std::string Machine::Waiting(uint32_t number) const {
  const Thread& thread = threads_[number];
  const std::string who = geometry_->Describe(group_, number);
  if (thread.state == State::kDone) return who + " has ended";
  return who + " is at " + thread.function + Line(thread.line) +
         (thread.state == State::kAtExchange ? "" : " for memory " + std::to_string(thread.memory));
}

// Nobody can go on: one thread that waits, and one that keeps it waiting.
std::string Machine::Divergence() const {
  const auto at = [&](bool (*wanted)(const Thread&, const Thread&), const Thread& other) {
    return std::find_if(threads_.begin(), threads_.end(), [&](const Thread& t) { return wanted(t, other); });
  };
  const auto waits = at([](const Thread& t, const Thread&) { return t.state != State::kDone; }, threads_[0]);
  const auto blocks =
      at([](const Thread& t,
            const Thread& w) { return t.state == State::kDone || t.state != w.state || t.line != w.line; },
         *waits);
  return "barrier divergence: " + Waiting(static_cast<uint32_t>(waits - threads_.begin())) +
         (blocks == threads_.end() ? "" : ", " + Waiting(static_cast<uint32_t>(blocks - threads_.begin())));
}

}  // namespace pjrt_metal::software
