#include "csrc/software/host_cpu.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>
#ifdef __linux__
#include <sched.h>
#endif
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

namespace pjrt_metal::software {
namespace {

uint32_t VectorBytes() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return 64;
  if (__builtin_cpu_supports("avx2")) return 32;
#endif
  return 16;
}

uint32_t UsableCores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return static_cast<uint32_t>(std::max(CPU_COUNT(&set), 1));
  }
#endif
  return std::max(std::thread::hardware_concurrency(), 1u);
}

uint64_t MemoryBytes() {
  uint64_t bytes =
      static_cast<uint64_t>(std::max(sysconf(_SC_PHYS_PAGES), 0L)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  // Control groups, version 2 and 1. No limit is the word "max", or a number beyond any memory.
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    uint64_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

#ifdef __APPLE__
std::string Sysctl(const char* name) {
  char text[256];
  size_t size = sizeof text;
  if (sysctlbyname(name, text, &size, nullptr, 0) != 0 || size == 0) return "";
  return std::string(text, size - 1);
}
#endif

void DescribeModel(HostCpu& host) {
#ifdef __APPLE__
  host.name = Sysctl("machdep.cpu.brand_string");
  host.features = host.name + Sysctl("machdep.cpu.features") + Sysctl("machdep.cpu.leaf7_features");
#else
  // The first processor's block. x86 calls them "model name" and "flags"; arm64 has "CPU part" and
  // "Features", and no name that a person would know.
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    const std::string value = line.substr(std::min(colon + 2, line.size()));
    if (key == "model name") host.name = value;
    for (const char* wanted :
         {"vendor_id", "cpu family", "model", "model name", "flags", "CPU implementer", "CPU part", "Features"}) {
      if (key == wanted) host.features += key + "=" + value + "\n";
    }
  }
#endif
  if (host.name.empty()) {
#if defined(__aarch64__)
    host.name = "arm64";
#else
    host.name = "unknown CPU";
#endif
  }
}

}  // namespace

HostCpu DescribeHost() {
  HostCpu host;
  DescribeModel(host);
  host.cores = UsableCores();
  host.vector_bytes = VectorBytes();
  host.memory_bytes = MemoryBytes();
  return host;
}

}  // namespace pjrt_metal::software
