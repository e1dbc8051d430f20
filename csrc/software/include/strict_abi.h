// What a kernel compiled for the strict device calls. Read by kernels (no standard headers) and by
// the device.
#pragma once

namespace software {

enum class Access : unsigned { kRead, kWrite, kAtomicRead, kAtomicWrite, kAtomicUpdate };
enum class Scope : unsigned { kThreadgroup, kSimdgroup };
// The bits of MSL's mem_flags.
constexpr unsigned kDeviceMemory = 1, kThreadgroupMemory = 2;
constexpr unsigned kSimdWidth = 32;
// The largest value that lanes exchange.
constexpr unsigned kExchangeBytes = 32;

// None of these returns after a violation: the thread is abandoned.
struct StrictRuntime {
  // Before every access to memory that is not a thread's own variable.
  void (*access)(const void* address, unsigned long bytes, Access access);
  void (*barrier)(Scope scope, unsigned memory, int line);
  // Gives every active lane of the SIMD group all lanes' values. Returns the active lanes' mask and
  // sets `lane` to the caller's.
  unsigned (*exchange)(const char* function, const void* value, unsigned bytes, void* values, unsigned* lane, int line);
  void* (*threadgroup_memory)(const char* name, unsigned long bytes, unsigned long alignment, int line);
  // An array of the calling thread's own, new at every call: nothing is written yet.
  void* (*thread_memory)(const char* name, unsigned long bytes, unsigned long alignment, int line);
  void (*fail)(const char* function, const char* message, int line);
};

}  // namespace software
