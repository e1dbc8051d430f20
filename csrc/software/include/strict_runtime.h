// Every access to memory is preceded by a call of the device: kernels are compiled with the
// instrumentation of ThreadSanitizer, whose entry points are defined here. That of
// UndefinedBehaviorSanitizer finds accesses that are not aligned, and wrong indices of a thread's own
// arrays.
#pragma once

#include "strict_abi.h"

#define SOFTWARE_HOOK __attribute__((no_sanitize("thread"), noinline, unused))

namespace software {

static const StrictRuntime* runtime;  // set by the kernel's caller

SOFTWARE_HOOK static void strict_access(const volatile void* address, size_t bytes, Access access) {
  runtime->access(const_cast<const void*>(address), bytes, access);
}
SOFTWARE_HOOK static void strict_barrier(Scope scope, uint memory, int line) { runtime->barrier(scope, memory, line); }
SOFTWARE_HOOK static uint strict_exchange(const char* function, const void* value, uint bytes, void* values, uint* lane,
                                          int line) {
  return runtime->exchange(function, value, bytes, values, lane, line);
}
SOFTWARE_HOOK static void strict_fail(const char* function, const char* message, int line) {
  runtime->fail(function, message, line);
}
SOFTWARE_HOOK static void* threadgroup_memory(const char* name, size_t bytes, size_t alignment, int line) {
  return runtime->threadgroup_memory(name, bytes, alignment, line);
}
SOFTWARE_HOOK static void* thread_memory(const char* name, size_t bytes, size_t alignment, int line) {
  return runtime->thread_memory(name, bytes, alignment, line);
}

}  // namespace software

extern "C" {
#define SOFTWARE_TSAN SOFTWARE_HOOK __attribute__((visibility("hidden"))) void
SOFTWARE_TSAN __tsan_init() {}
SOFTWARE_TSAN __tsan_func_entry(void*) {}
SOFTWARE_TSAN __tsan_func_exit() {}
#define SOFTWARE_ACCESS(bytes)                                                                                        \
  SOFTWARE_TSAN __tsan_read##bytes(void* p) { software::strict_access(p, bytes, software::Access::kRead); }           \
  SOFTWARE_TSAN __tsan_write##bytes(void* p) { software::strict_access(p, bytes, software::Access::kWrite); }         \
  SOFTWARE_TSAN __tsan_unaligned_read##bytes(void* p) { software::strict_access(p, bytes, software::Access::kRead); } \
  SOFTWARE_TSAN __tsan_unaligned_write##bytes(void* p) { software::strict_access(p, bytes, software::Access::kWrite); }
SOFTWARE_ACCESS(1)
SOFTWARE_ACCESS(2)
SOFTWARE_ACCESS(4)
SOFTWARE_ACCESS(8)
SOFTWARE_ACCESS(16)
#undef SOFTWARE_ACCESS
SOFTWARE_TSAN __tsan_read_range(void* p, size_t bytes) { software::strict_access(p, bytes, software::Access::kRead); }
SOFTWARE_TSAN __tsan_write_range(void* p, size_t bytes) { software::strict_access(p, bytes, software::Access::kWrite); }
// Where clang would call the C library's.
SOFTWARE_HOOK __attribute__((visibility("hidden"))) void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  software::strict_access(from, bytes, software::Access::kRead);
  software::strict_access(to, bytes, software::Access::kWrite);
  return __builtin_memcpy(to, from, bytes);
}
SOFTWARE_HOOK __attribute__((visibility("hidden"))) void* __tsan_memset(void* to, int value, size_t bytes) {
  software::strict_access(to, bytes, software::Access::kWrite);
  return __builtin_memset(to, value, bytes);
}

// UndefinedBehaviorSanitizer's: what begins the data of each report is where in the source it is.
struct SoftwareUbsanData {
  const char* file;
  uint line, column;
};
SOFTWARE_TSAN __ubsan_handle_type_mismatch_v1(SoftwareUbsanData* data, void*) {
  software::strict_fail("an access", "is not aligned as its type must be", int(data->line));
}
SOFTWARE_TSAN __ubsan_handle_out_of_bounds(SoftwareUbsanData* data, void*) {
  software::strict_fail("an array", "is indexed out of its bounds", int(data->line));
}
#undef SOFTWARE_TSAN
}
