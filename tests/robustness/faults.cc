// What the system may refuse, refused: a library for LD_PRELOAD.
//
// FailAllocation makes allocations of the software device fail: nobody else here asks for 256 bytes of alignment.
// FAULT_FOLDER names a folder that something is wrong with, FAULT what: "readonly"; "full:N", N bytes fit; "power:N",
// the process ends at the N-th change of something in it, a write half done.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr size_t kDeviceAlignment = 256;
std::atomic<long> allocations = 0, failing_from = 0;
std::atomic<bool> failing_once = false;
std::atomic<long> bytes_left = 0, changes_left = 0;
std::atomic<bool> watched[1024];  // file descriptors of the folder

enum Fault { kNone, kReadOnly, kFull, kPower };

Fault TheFault() {
  static const Fault fault = [] {
    const char* text = std::getenv("FAULT");
    if (text == nullptr) return kNone;
    long number = 0;
    if (std::strcmp(text, "readonly") == 0) return kReadOnly;
    if (std::sscanf(text, "full:%ld", &number) == 1) {
      bytes_left = number;
      return kFull;
    }
    if (std::sscanf(text, "power:%ld", &number) == 1) {
      changes_left = number;
      return kPower;
    }
    std::abort();
  }();
  return fault;
}

bool Inside(const char* path) {
  static const char* const folder = std::getenv("FAULT_FOLDER");
  return folder != nullptr && path != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0;
}

bool PowerFails() { return TheFault() == kPower && changes_left.fetch_sub(1) == 1; }

// Whether a change of the folder's names is refused; `needs_room`: also by a full disk.
bool Refused(const char* path, bool needs_room) {
  if (!Inside(path)) return false;
  const Fault fault = TheFault();
  if (PowerFails()) _exit(137);
  if (fault == kReadOnly) errno = EROFS;
  if (fault == kFull) errno = ENOSPC;
  return fault == kReadOnly || (fault == kFull && needs_room && bytes_left <= 0);
}

template <class Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

// The `from`-th allocation from now fails (1 is the next; 0: none does), and all after it unless `once`. Returns how
// many there were since the last call.
__attribute__((visibility("default"))) long FailAllocation(long from, int once) {
  failing_from = from;
  failing_once = once != 0;
  return allocations.exchange(0);
}

int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  static auto* const next = Next<int(void**, size_t, size_t)>("posix_memalign");
  if (alignment >= kDeviceAlignment) {
    const long number = ++allocations, from = failing_from;
    if (from > 0 && (failing_once ? number == from : number >= from)) return ENOMEM;
  }
  return next(memory, alignment, size);
}

int open(const char* path, int flags, ...) {
  static auto* const next = Next<int(const char*, int, ...)>("open");
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  const bool writes = (flags & (O_WRONLY | O_RDWR)) != 0;
  if (writes && Refused(path, false)) return -1;
  const int file = next(path, flags, mode);
  if (file >= 0 && file < 1024) watched[file] = writes && Inside(path);
  return file;
}

ssize_t write(int file, const void* data, size_t size) {
  static auto* const next = Next<ssize_t(int, const void*, size_t)>("write");
  if (file < 0 || file >= 1024 || !watched[file]) return next(file, data, size);
  if (PowerFails()) {
    if (next(file, data, size / 2) < 0) _exit(138);
    _exit(137);
  }
  if (TheFault() == kFull) {
    const long left = bytes_left.fetch_sub(static_cast<long>(size));
    if (left <= 0) {
      errno = ENOSPC;
      return -1;
    }
    if (static_cast<long>(size) > left) return next(file, data, static_cast<size_t>(left));
  }
  return next(file, data, size);
}

int rename(const char* from, const char* to) noexcept {
  static auto* const next = Next<int(const char*, const char*)>("rename");
  return Refused(to, false) ? -1 : next(from, to);
}
int link(const char* from, const char* to) noexcept {
  static auto* const next = Next<int(const char*, const char*)>("link");
  return Refused(to, true) ? -1 : next(from, to);
}
int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const next = Next<int(const char*, mode_t)>("mkdir");
  return Refused(path, true) ? -1 : next(path, mode);
}
int unlink(const char* path) noexcept {
  static auto* const next = Next<int(const char*)>("unlink");
  return Refused(path, false) ? -1 : next(path);
}

}  // extern "C"
