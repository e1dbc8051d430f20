// From kernels' sources to pipelines: looked up in memory, then on disk, then compiled.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "csrc/metal/archives.h"
#include "csrc/metal/objc.h"
#include "csrc/runtime/device.h"

namespace pjrt_metal::metal {

// The SIMD width of every Apple GPU, which the targets' schedules count on.
inline constexpr uint64_t kSimdWidth = 32;

// One kInput or kOutput parameter: its [[buffer(i)]], and whether the kernel writes to it.
struct BufferParameter {
  uint32_t index;
  bool writes;
};

// `args_index`: [[buffer(i)]] of kArgs, or -1.
struct MetalPipeline : Pipeline {
  std::string name;
  Ref state;
  uint32_t max_threads = 0;  // in one threadgroup of this kernel
  std::vector<BufferParameter> buffers;
  int args_index = -1;
};

// MSL's version that kernels are compiled as: the newest that this macOS has.
struct Language {
  int64_t macos;
  uint64_t value;
  int number;  // major * 10 + minor, as in a target's text
  const char* option;
};
// nullptr if macOS is too old.
const Language* LanguageOf(const OsVersion& macos);

class Pipelines {
 public:
  // `system`: what decides the machine code of a source besides the compiler's options: the GPU and macOS's build.
  // `archives`: the folder for machine code; empty: it is not kept.
  Pipelines(Id device, const Language& language, std::string system, std::string archives);

  // In parallel; see Device::Compile.
  std::vector<PipelineRef> Compile(const std::string& preamble, std::span<const KernelSource> kernels);
  std::shared_ptr<const MetalPipeline> CompileOne(const std::string& preamble, const KernelSource& kernel);

 private:
  std::shared_ptr<const MetalPipeline> Build(const std::string& source, const KernelSource& kernel,
                                             const std::string& key);
  Ref Function(const std::string& source, const std::string& name) const;
  Ref State(const std::string& source, const KernelSource& kernel, const std::string& key);

  Ref device_;
  const Language& language_;
  std::string system_;
  Archives archives_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const MetalPipeline>> cache_;  // by all that Build reads
};

}  // namespace pjrt_metal::metal
