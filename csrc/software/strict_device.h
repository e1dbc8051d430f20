// The software Metal device in strict mode: runs the kernels an Apple GPU would get, or the software device's own,
// slowly, and throws at what Metal leaves undefined: accesses outside of a buffer, reads of what nobody wrote (in a
// program: wrote for what is read now), threads that depend on one another's order. For tests.
#pragma once

#include <memory>
#include <string>

#include "csrc/runtime/device.h"

namespace pjrt_metal::software {

// `family`: apple7, apple8 or apple9, or software. Throws InvalidArgument for another. Runs every launch in
// PJRT_METAL_STRICT_ORDERS orders of threads.
std::unique_ptr<Device> CreateStrict(const std::string& family);

}  // namespace pjrt_metal::software
