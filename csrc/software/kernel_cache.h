// From kernels' sources to functions: looked up in memory, then on disk, then compiled.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "csrc/software/disk_cache.h"
#include "csrc/software/kernel_unit.h"

namespace pjrt_metal::software {

// A kernel's function, and what keeps the library that holds it loaded.
struct LoadedKernel {
  KernelFunction run = nullptr;
  std::shared_ptr<const void> library;
};

class KernelCache {
 public:
  // `host`: what decides the machine code for a given source besides the compiler's options.
  // `threads`: how many compilers run at once. `dialect` lives as long as the cache and says which
  // functions KernelFunctions really are.
  KernelCache(std::string host, uint32_t threads, const Dialect& dialect);

  // Thread-safe. Throws as Device::Compile; ResourceExhausted if the process can load no more libraries. A library is
  // unloaded with the last holder of its kernels.
  std::vector<LoadedKernel> Get(const std::string& preamble, std::span<const KernelSource> kernels);

 private:
  struct Wanted {
    Digest key;
    std::string symbol;
    std::string text;
  };
  struct Known {
    KernelFunction run;
    std::weak_ptr<const void> library;
  };
  using Loaded = std::map<Digest, LoadedKernel>;
  static bool LoadFrom(const std::string& library, const Wanted& wanted, Loaded& loaded);
  void LoadFromDisk(std::vector<Wanted>& missing, Loaded& loaded);
  void Compile(const std::string& preamble, std::vector<Wanted> missing, Loaded& loaded);
  void Remember(const Loaded& loaded);

  const Dialect& dialect_;
  const std::string cxx_;
  const std::string environment_;  // all of a key but preamble and kernel
  const uint32_t threads_;
  DiskCache disk_;            // guarded by compile_mutex_
  std::mutex compile_mutex_;  // one compilation at a time: each uses all threads
  std::mutex mutex_;          // guards what follows
  std::map<Digest, Known> functions_;
  size_t forget_from_ = kForgetFrom;  // size of functions_ from which those of unloaded libraries are forgotten
  static constexpr size_t kForgetFrom = 1024;
};

}  // namespace pjrt_metal::software
