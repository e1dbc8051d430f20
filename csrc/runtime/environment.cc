#include "csrc/runtime/environment.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "csrc/runtime/error.h"

namespace pjrt_metal::environment {
namespace {

std::string Get(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsSet(const char* name) {
  const std::string value = Get(name);
  return !value.empty() && value != "0";
}

std::optional<uint32_t> Number(const std::string& name, uint32_t largest) {
  const std::string text = Get(name.c_str());
  if (text.empty()) return std::nullopt;
  uint32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end || value < 1 || value > largest) {
    throw InvalidArgument(name + "=" + text + ": expected a number from 1 to " + std::to_string(largest));
  }
  return value;
}

}  // namespace

bool Log() { return IsSet("PJRT_METAL_LOG"); }

std::string DeviceChoice() { return Get("PJRT_METAL_DEVICE"); }
std::string Cxx() { return Get("PJRT_METAL_CXX"); }
std::string CacheDir() { return Get("PJRT_METAL_CACHE_DIR"); }
std::string Home() { return Get("HOME"); }
std::string XdgCacheHome() { return Get("XDG_CACHE_HOME"); }

std::string Capture() { return Get("PJRT_METAL_CAPTURE"); }
bool Residency() { return Get("PJRT_METAL_RESIDENCY") != "0"; }
bool ShaderValidation() { return IsSet("MTL_SHADER_VALIDATION"); }

bool Poison() { return IsSet("PJRT_METAL_POISON"); }
std::string Strict() { return Get("PJRT_METAL_STRICT"); }

uint32_t CxxSeconds() { return Number("PJRT_METAL_CXX_SECONDS", 100000).value_or(600); }
std::optional<uint32_t> CacheMegabytes() { return Number("PJRT_METAL_CACHE_MB", 1 << 30); }
std::optional<uint32_t> Threads() { return Number("PJRT_METAL_THREADS", 1024); }
std::optional<uint32_t> StrictOrders() { return Number("PJRT_METAL_STRICT_ORDERS", 3); }

Library LibraryChoice() {
  const std::string value = Get("PJRT_METAL_LIBRARY");
  if (value.empty() || value == "auto") return Library::kAuto;
  if (value == "mpsgraph") return Library::kMpsgraph;
  if (value == "kernels") return Library::kKernels;
  throw InvalidArgument("PJRT_METAL_LIBRARY=" + value + ": expected auto, mpsgraph or kernels");
}

}  // namespace pjrt_metal::environment
