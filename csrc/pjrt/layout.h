// Layouts as PJRT gives them (tiles or byte strides), as the runtime keeps them (minor to major),
// and as text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/pjrt/pjrt_c_api.h"
#include "csrc/runtime/dtype.h"

namespace pjrt_metal {

// {rank-1, ..., 0}: row-major.
std::vector<int64_t> DefaultLayout(size_t rank);

// The minor-to-major order of a dense device layout; null: row-major. Checks `dims` too. Throws
// InvalidArgument for a layout that is not of this rank or not dense, Unimplemented for tiles.
std::vector<int64_t> DeviceLayout(const PJRT_Buffer_MemoryLayout* layout, DType dtype, std::span<const int64_t> dims);

// Byte strides of a host array; null: those of `minor_to_major`. Throws InvalidArgument if an
// element would lie outside of `size` bytes.
std::vector<int64_t> HostStrides(const PJRT_Buffer_MemoryLayout* layout, DType dtype, std::span<const int64_t> dims,
                                 std::span<const int64_t> minor_to_major, size_t size);

// "{1,0}": XLA's spelling of a layout without tiles.
std::string LayoutText(std::span<const int64_t> minor_to_major);

// XLA's ShapeProto.
std::string ShapeProto(DType dtype, std::span<const int64_t> dims, std::span<const int64_t> minor_to_major);

}  // namespace pjrt_metal
