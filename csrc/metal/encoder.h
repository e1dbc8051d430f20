// Submissions to the Metal device.
#pragma once

#include <functional>
#include <memory>

#include "csrc/metal/command_queue.h"
#include "csrc/metal/pipelines.h"
#include "csrc/runtime/device.h"

namespace pjrt_metal::metal {

// The kernel that copies `bytes` a thread, 16, 4 or 1; asked for when a copy comes.
using CopyKernels = std::function<std::shared_ptr<const MetalPipeline>(uint32_t bytes)>;
std::unique_ptr<Encoder> NewMetalEncoder(std::shared_ptr<CommandQueue> queue, CopyKernels copy_kernels);

// Threads in a threadgroup where the launch leaves the choice: at most 256 (8 SIMD groups keep a
// core busy and let several threadgroups share it), filled along x first since consecutive threads
// touch consecutive memory.
Size ChooseThreadgroup(const uint32_t (&threads)[3], uint32_t max_threads);

}  // namespace pjrt_metal::metal
