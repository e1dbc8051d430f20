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
  std::map<std::pair<std::string, std::string>, void*> handlers;  // by target and platform
  std::map<std::string, int64_t, std::less<>> types;
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

void RegisterFfiHandler(std::string_view target, std::string_view platform, void* handler) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto [entry, added] = registry.handlers.emplace(Key(target, platform), handler);
  if (!added && entry->second != handler) {
    throw Error(Code::kAlreadyExists, "FFI target '" + std::string(target) +
                                          "' already has another handler on platform '" + std::string(platform) + "'");
  }
}

void* FindFfiHandler(std::string_view target, std::string_view platform) {
  Registry& registry = TheRegistry();
  const std::lock_guard lock(registry.mutex);
  const auto entry = registry.handlers.find(Key(target, platform));
  return entry == registry.handlers.end() ? nullptr : entry->second;
}

int64_t RegisterFfiType(std::string_view name, int64_t id) {
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
  return id;
}

}  // namespace pjrt_metal
