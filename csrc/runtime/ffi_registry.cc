#include "csrc/runtime/ffi_registry.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <utility>

#include "csrc/runtime/error.h"

namespace pjrt_metal {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::pair<std::string, std::string>, FfiHandlers> handlers;  // by target and platform
  std::map<std::string, int64_t, std::less<>> types;
  std::map<int64_t, FfiDeleter> deleters;
};

Registry& TheRegistry() {
  static Registry* const registry = new Registry;  // never destroyed: handlers may be called at exit
  return *registry;
}

std::pair<std::string, std::string> Key(std::string_view target, std::string_view platform) {
  std::string lower(platform);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return {std::string(target), std::move(lower)};
}

}  // namespace

void RegisterFfiHandlers(std::string_view target, std::string_view platform, const FfiHandlers& handlers) {
  if (handlers[xla_ffi::kExecute] == nullptr) {
    throw InvalidArgument("FFI target '" + std::string(target) + "' has no handler for its execution");
  }
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto [entry, added] = registry.handlers.emplace(Key(target, platform), handlers);
  if (!added && entry->second != handlers) {
    throw Error(Code::kAlreadyExists, "FFI target '" + std::string(target) +
                                          "' already has another handler on platform '" + std::string(platform) + "'");
  }
}

FfiHandlers FindFfiHandlers(std::string_view target, std::string_view platform) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto entry = registry.handlers.find(Key(target, platform));
  return entry == registry.handlers.end() ? FfiHandlers{} : entry->second;
}

int64_t RegisterFfiType(std::string_view name, int64_t id, FfiDeleter deleter) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto entry = registry.types.find(name);
  if (entry != registry.types.end()) {
    if (id != 0 && id != entry->second) {
      throw Error(Code::kAlreadyExists,
                  "FFI type '" + std::string(name) + "' already has the id " + std::to_string(entry->second));
    }
    return entry->second;
  }
  if (id == 0) {
    for (const auto& [other, taken] : registry.types) id = std::max(id, taken);
    ++id;
  }
  registry.types.emplace(name, id);
  if (deleter != nullptr) registry.deleters.emplace(id, deleter);
  return id;
}

FfiDeleter FindFfiDeleter(int64_t type) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto entry = registry.deleters.find(type);
  return entry == registry.deleters.end() ? nullptr : entry->second;
}

}  // namespace pjrt_metal
