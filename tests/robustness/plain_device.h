#pragma once

#include "csrc/runtime/device.h"

namespace pjrt_metal {

// What the Programs of the tests are compiled for, unless PLAIN_TARGET says another.
inline constexpr const char* kPlainTarget = "software:threads=2,vector_bytes=64";

}  // namespace pjrt_metal
