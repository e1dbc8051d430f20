// The software Metal device in strict mode: runs the kernels an Apple GPU would get, slowly, and
// throws at what Metal leaves undefined. For tests.
#pragma once

#include <memory>
#include <string>

#include "csrc/runtime/device.h"

namespace pjrt_metal::software {

// `family`: apple7, apple8 or apple9. Throws InvalidArgument for another. Runs every launch in
// PJRT_METAL_STRICT_ORDERS orders of threads.
std::unique_ptr<Device> CreateStrict(const std::string& family);

}  // namespace pjrt_metal::software
