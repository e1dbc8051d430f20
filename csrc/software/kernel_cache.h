// From kernels' sources to functions: looked up in memory, then on disk, then compiled.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "csrc/software/disk_cache.h"
#include "csrc/software/kernel_unit.h"

namespace pjrt_metal::software {

class KernelCache {
 public:
  // `host`: what decides the machine code for a given source besides the compiler's options.
  // `threads`: how many compilers run at once. `dialect` lives as long as the cache and says which
  // functions KernelFunctions really are.
  KernelCache(std::string host, uint32_t threads, const Dialect& dialect);

  // Thread-safe. Throws as Device::Compile.
  std::vector<KernelFunction> Get(const std::string& preamble, std::span<const KernelSource> kernels);

 private:
  struct Wanted {
    Digest key;
    std::string symbol;
    std::string text;
  };
  bool LoadFrom(const std::string& library, const Wanted& wanted);
  void LoadFromDisk(std::vector<Wanted>& missing);
  void Compile(const std::string& preamble, std::vector<Wanted> missing);

  const Dialect& dialect_;
  const std::string cxx_;
  const std::string environment_;  // all of a key but preamble and kernel
  const uint32_t threads_;
  DiskCache disk_;            // guarded by compile_mutex_
  std::mutex compile_mutex_;  // one compilation at a time: each uses all threads
  std::mutex mutex_;          // guards functions_
  std::map<Digest, KernelFunction> functions_;
};

}  // namespace pjrt_metal::software
