// What commands name: memory (memory.h) and compiled kernels.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "csrc/metal/memory.h"
#include "csrc/metal/objc.h"
#include "csrc/runtime/device.h"

namespace pjrt_metal::metal {

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

}  // namespace pjrt_metal::metal
