// What this machine is: the facts behind DeviceInfo and the cache's keys.
#pragma once

#include <cstdint>
#include <string>

namespace pjrt_metal::software {

struct HostCpu {
  std::string name;      // "AMD EPYC"
  std::string features;  // all that decides what -march=native means, for the cache's keys
  uint32_t cores = 1;    // that this process may run on
  uint32_t vector_bytes = 16;
  uint64_t memory_bytes = 0;  // physical memory, or this container's limit if that is lower
};
HostCpu DescribeHost();

}  // namespace pjrt_metal::software
