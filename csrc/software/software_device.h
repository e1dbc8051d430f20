// The software Metal device: kernels compiled by the host's C++ compiler, run on the CPU.
#pragma once

#include <memory>

#include "csrc/runtime/device.h"

namespace pjrt_metal::software {

// Cheap and silent: a compiler is looked for when a kernel must be compiled that no cache has.
// Throws InvalidArgument for a PJRT_METAL_THREADS that is no number.
std::unique_ptr<Device> Create();

}  // namespace pjrt_metal::software
