// How kernels' floating-point arithmetic treats denormals: as zeros, as Apple's GPUs do and XLA on the CPU does.
#pragma once

#include <cstdint>

namespace pjrt_metal::software {

// While it lives, this thread takes denormal operands for zero and makes zero of denormal results. The host program's
// own setting comes back after it.
class FlushDenormals {
 public:
  FlushDenormals() : before_(Get()) { Set(before_ | kFlush); }
  ~FlushDenormals() { Set(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  using Word = uint32_t;
  static constexpr Word kFlush = 0x8040;  // MXCSR: flush to zero, denormals are zero
  static Word Get() { return __builtin_ia32_stmxcsr(); }
  static void Set(Word word) { __builtin_ia32_ldmxcsr(word); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word kFlush = 1 << 24;  // FPCR.FZ; FZ16 stays off: half keeps its denormals
  static Word Get() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void Set(Word word) { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#endif
  Word before_;
};

}  // namespace pjrt_metal::software
