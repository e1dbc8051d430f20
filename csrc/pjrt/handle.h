// Memory of the objects behind the C API's handles. A handle that its client destroyed before, or one of another kind,
// is told from a live one: its use is an error, not a crash. Blocks are never given back to the system, and the words
// in front of an object say whose it is.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>

namespace pjrt_metal {

// Blocks for one kind of object.
class HandlePool {
 public:
  explicit HandlePool(size_t bytes) : bytes_(bytes) {}
  void* Take();
  void Give(void* object) noexcept;
  // Whether an object of this pool lives there. The 16 bytes before it are read.
  bool Owns(const void* object) const;

 private:
  // A block that was given back rests until this many others were: a handle's stale copy stays stale.
  static constexpr size_t kResting = 1024;

  struct alignas(16) Header {
    std::atomic<const HandlePool*> owner;  // nullptr: no object here
    Header* next;                          // while it rests
  };

  const size_t bytes_;
  std::mutex mutex_;
  Header* oldest_ = nullptr;
  Header* newest_ = nullptr;
  size_t resting_ = 0;
};

// In a handle's struct: its objects come from a pool of their own, which is never destroyed.
#define PJRT_METAL_HANDLE(type)                                           \
  static ::pjrt_metal::HandlePool& pool() {                               \
    static auto* const pool = new ::pjrt_metal::HandlePool(sizeof(type)); \
    return *pool;                                                         \
  }                                                                       \
  static void* operator new(size_t) { return pool().Take(); }             \
  static void operator delete(void* object) noexcept { pool().Give(object); }

}  // namespace pjrt_metal
