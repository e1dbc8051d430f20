#include "csrc/metal/pressure.h"

#include <dlfcn.h>

#include <cstdint>
#include <mutex>
#include <set>

#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

// DISPATCH_MEMORYPRESSURE_WARN and _CRITICAL of dispatch/source.h.
constexpr uintptr_t kWarning = 2;
constexpr uintptr_t kCritical = 4;

// One event source a process, never cancelled: it has no watchers' addresses, so it may outlive them all.
struct Watchers {
  std::mutex mutex;
  std::set<const std::function<void()>*> releases;
};
Watchers& AllWatchers() {
  static auto* const watchers = new Watchers;  // never freed: an event may come while the process exits
  return *watchers;
}

void OnPressure(void*) {
  Watchers& watchers = AllWatchers();
  const std::lock_guard lock(watchers.mutex);
  for (const auto* release : watchers.releases) (*release)();
}

template <typename T>
bool Find(const char* symbol, T& address) {
  address = reinterpret_cast<T>(dlsym(RTLD_DEFAULT, symbol));
  if (address == nullptr) LogPhase("metal: no pressure watch", 0, std::string("this process lacks ") + symbol);
  return address != nullptr;
}

// libdispatch's C functions, which libSystem has.
bool Listen() {
  const void* type = nullptr;
  void* (*create)(const void*, uintptr_t, uintptr_t, void*) = nullptr;
  void (*set_handler)(void*, void (*)(void*)) = nullptr;
  void (*resume)(void*) = nullptr;
  if (!Find("_dispatch_source_type_memorypressure", type) || !Find("dispatch_source_create", create) ||
      !Find("dispatch_source_set_event_handler_f", set_handler) || !Find("dispatch_resume", resume)) {
    return false;
  }
  // No queue: the default one.
  void* const source = create(type, 0, kWarning | kCritical, nullptr);
  if (source == nullptr) {
    LogPhase("metal: no pressure watch", 0, "dispatch_source_create gave none");
    return false;
  }
  set_handler(source, OnPressure);
  resume(source);
  return true;
}

}  // namespace

PressureWatch::PressureWatch(std::function<void()> release) : release_(std::move(release)) {
  [[maybe_unused]] static const bool listening = Listen();
  const std::lock_guard lock(AllWatchers().mutex);
  AllWatchers().releases.insert(&release_);
}

PressureWatch::~PressureWatch() {
  const std::lock_guard lock(AllWatchers().mutex);
  AllWatchers().releases.erase(&release_);
}

}  // namespace pjrt_metal::metal
