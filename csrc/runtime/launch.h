// What every device checks of a launch, in the same words.
#pragma once

#include <algorithm>
#include <string>

#include "csrc/runtime/device.h"

namespace pjrt_metal {

// Throws Internal, naming the kernel, unless it gets as many buffers as it has, arguments if it takes some, and a grid
// that is not empty. The Program's verifier has looked at all three (program.cc): this is for who encodes by hand.
inline void CheckLaunch(const std::string& kernel, size_t wanted_buffers, bool takes_args, size_t buffers,
                        size_t argument_bytes, const Grid& grid) {
  if (buffers != wanted_buffers || (argument_bytes > 0) != takes_args) {
    throw Internal(kernel + ": launched with " + std::to_string(buffers) + " buffers and " +
                   std::to_string(argument_bytes) + " bytes of arguments; it takes " + std::to_string(wanted_buffers) +
                   " buffers and " + (takes_args ? "some" : "no") + " arguments");
  }
  if (std::find(std::begin(grid.threads), std::end(grid.threads), 0) != std::end(grid.threads)) {
    throw Internal(kernel + ": launched with an empty grid");
  }
}

}  // namespace pjrt_metal
