// Who does a Program's library calls: the vendor's library or the kernels that do the same.
#pragma once

#include <span>
#include <vector>

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/program.h"

namespace pjrt_metal {

// One entry a library op of the program: the prepared call, or nullptr where the kernels run. As PJRT_METAL_LIBRARY
// says: `kernels`, `mpsgraph` (wherever the device can), or `auto`: both are timed when a description is first seen on
// a chip and system, and the winner is remembered in the cache folder.
std::vector<LibraryCallRef> ChooseLibraryCalls(const Program& program, Device& device, Allocator& allocator,
                                               std::span<const PipelineRef> pipelines,
                                               std::span<const size_t> constant_offsets);

}  // namespace pjrt_metal
