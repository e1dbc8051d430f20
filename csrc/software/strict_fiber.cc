#include "csrc/software/strict_fiber.h"

#include <sys/mman.h>

#include <cstring>

#include "csrc/runtime/error.h"

namespace pjrt_metal::software {
namespace {

constexpr size_t kStackBytes = 256 << 10;  // only touched pages take memory
constexpr size_t kGuardBytes = 64 << 10;   // at each stack's end; a multiple of every page size

// Saves what a callee must preserve on the stack, stores the stack pointer in *from, continues at
// `to` with its registers, and returns `argument` there: the first time, as an argument of whatever
// address is on top.
extern "C" __attribute__((visibility("hidden"))) void SwitchStack(void** from, void* to,
                                                                  void* argument) asm("pjrt_metal_switch_stack");

#if defined(__x86_64__)
constexpr size_t kReturnWord = 6;  // of the saved frame
constexpr size_t kFrameWords = 8;  // then the stack is as after a call: 8 off a multiple of 16
asm(R"(
.text
pjrt_metal_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  movq %rdx, %rdi
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  retq
)");
#elif defined(__aarch64__)
constexpr size_t kReturnWord = 11;  // x30
constexpr size_t kFrameWords = 20;  // x19 to x30, d8 to d15
asm(R"(
.text
.balign 4
pjrt_metal_switch_stack:
  stp x19, x20, [sp, #-160]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  mov x0, x2
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp x19, x20, [sp], #160
  ret
)");
#else
#error "switching stacks is written for x86-64 and arm64"
#endif

}  // namespace

Fibers::Fibers(size_t count, void (*entry)(void*), void* context)
    : start_{entry, context}, bytes_(count * (kStackBytes + kGuardBytes)), stack_pointers_(count) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw ResourceExhausted("strict software Metal: no memory for its threads' stacks");
  memory_ = static_cast<std::byte*>(memory);
  for (size_t i = 0; i < count; ++i) mprotect(memory_ + i * (kStackBytes + kGuardBytes), kGuardBytes, PROT_NONE);
  Reset();
}

Fibers::~Fibers() { munmap(memory_, bytes_); }

void Fibers::Reset() {
  for (size_t i = 0; i < stack_pointers_.size(); ++i) {
    void** top = reinterpret_cast<void**>(memory_ + (i + 1) * (kStackBytes + kGuardBytes));
    void** frame = top - kFrameWords;
    std::memset(frame, 0, kFrameWords * sizeof(void*));
    frame[kReturnWord] = reinterpret_cast<void*>(&Fibers::Main);
    stack_pointers_[i] = frame;
  }
}

void Fibers::Main(Start* start) {
  start->entry(start->context);
  __builtin_trap();  // entry returned
}

void Fibers::Enter(size_t fiber) {
  running_ = fiber;
  SwitchStack(&outside_, stack_pointers_[fiber], &start_);
}

void Fibers::Leave() { SwitchStack(&stack_pointers_[running_], outside_, nullptr); }

bool Fibers::OnStack(size_t fiber, uintptr_t address, size_t bytes) const {
  const auto end = reinterpret_cast<uintptr_t>(memory_ + (fiber + 1) * (kStackBytes + kGuardBytes));
  return address >= end - kStackBytes && address <= end && bytes <= end - address;
}

}  // namespace pjrt_metal::software
