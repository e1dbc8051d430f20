// Submissions to the Metal device.
#pragma once

#include <memory>

#include "csrc/metal/command_queue.h"
#include "csrc/metal/resources.h"
#include "csrc/runtime/device.h"

namespace pjrt_metal::metal {

std::unique_ptr<Encoder> NewMetalEncoder(std::shared_ptr<CommandQueue> queue);

// Threads in a threadgroup where the launch leaves the choice: at most 256 (8 SIMD groups keep a
// core busy and let several threadgroups share it), filled along x first since consecutive threads
// touch consecutive memory.
Size ChooseThreadgroup(const uint32_t (&threads)[3], uint32_t max_threads);

}  // namespace pjrt_metal::metal
