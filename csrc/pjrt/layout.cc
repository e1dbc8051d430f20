#include "csrc/pjrt/layout.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/proto.h"
#include "csrc/runtime/buffer.h"

namespace pjrt_metal {
namespace {

std::vector<int64_t> FromTiled(const PJRT_Buffer_MemoryLayout_Tiled& tiled, size_t rank) {
  CheckStructSize(tiled.struct_size, PJRT_METAL_THROUGH(PJRT_Buffer_MemoryLayout_Tiled, minor_to_major_size),
                  typeid(tiled));
  if (PJRT_METAL_HAS(tiled, num_tiles) && tiled.num_tiles > 0) {
    throw Unimplemented("tiled layouts are not supported: a layout here is an order of dimensions");
  }
  const auto given = Required(tiled.minor_to_major, tiled.minor_to_major_size, "minor_to_major");
  if (given.size() != rank) {
    throw InvalidArgument("minor_to_major has " + std::to_string(given.size()) + " dimensions, the array has " +
                          std::to_string(rank));
  }
  std::vector<int64_t> order(given.begin(), given.end());
  std::vector<bool> seen(rank);
  for (const int64_t dim : order) {
    if (dim < 0 || dim >= static_cast<int64_t>(rank) || seen[dim]) {
      throw InvalidArgument("minor_to_major is not a permutation: " + LayoutText(order));
    }
    seen[dim] = true;
  }
  return order;
}

std::span<const int64_t> GivenStrides(const PJRT_Buffer_MemoryLayout_Strides& strides, size_t rank) {
  CheckStructSize(strides.struct_size, StructSize<PJRT_Buffer_MemoryLayout_Strides>(), typeid(strides));
  const auto given = Required(strides.byte_strides, strides.num_byte_strides, "byte_strides");
  if (given.size() != rank) {
    throw InvalidArgument("byte_strides has " + std::to_string(given.size()) + " entries, the array has " +
                          std::to_string(rank) + " dimensions");
  }
  return given;
}

void CheckLayout(const PJRT_Buffer_MemoryLayout& layout) {
  CheckStructSize(layout.struct_size, StructSize<PJRT_Buffer_MemoryLayout>(), typeid(layout));
  if (layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled && layout.type != PJRT_Buffer_MemoryLayout_Type_Strides) {
    throw InvalidArgument("memory layout of unknown type " + std::to_string(layout.type));
  }
}

// The order of dimensions that makes an array with these strides dense. Dimensions of one element
// may have any stride.
std::vector<int64_t> FromStrides(std::span<const int64_t> strides, DType dtype, std::span<const int64_t> dims) {
  std::vector<int64_t> order = DefaultLayout(dims.size());
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  const std::vector<int64_t> dense = DenseStrides(dims, order, Info(dtype).host_bits / 8);
  const bool empty = std::find(dims.begin(), dims.end(), 0) != dims.end();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!empty && dims[i] > 1 && strides[i] != dense[i]) {
      throw InvalidArgument("a device layout must be dense; dimension " + std::to_string(i) + " has the byte stride " +
                            std::to_string(strides[i]));
    }
  }
  return order;
}

}  // namespace

std::vector<int64_t> DefaultLayout(size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.rbegin(), order.rend(), 0);
  return order;
}

std::vector<int64_t> DeviceLayout(const PJRT_Buffer_MemoryLayout* layout, DType dtype, std::span<const int64_t> dims) {
  DenseBytes(dtype, dims);  // throws for bad dimensions
  if (layout == nullptr) return DefaultLayout(dims.size());
  CheckLayout(*layout);
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled) {
    return FromTiled(layout->tiled, dims.size());
  }
  return FromStrides(GivenStrides(layout->strides, dims.size()), dtype, dims);
}

std::vector<int64_t> HostStrides(const PJRT_Buffer_MemoryLayout* layout, DType dtype, std::span<const int64_t> dims,
                                 std::span<const int64_t> minor_to_major, size_t size) {
  const size_t bytes = DenseBytes(dtype, dims);
  const size_t element = Info(dtype).host_bits / 8;
  std::vector<int64_t> strides;
  if (layout == nullptr) {
    strides = DenseStrides(dims, minor_to_major, element);
  } else {
    CheckLayout(*layout);
    if (layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled) {
      strides = DenseStrides(dims, FromTiled(layout->tiled, dims.size()), element);
    } else {
      const auto given = GivenStrides(layout->strides, dims.size());
      strides.assign(given.begin(), given.end());
    }
  }
  if (bytes == 0) return strides;
  // The last element's end; 128 bits hold any product of two of 64, and the sum of any likely rank.
  __int128 end = element;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > 1 && strides[i] < 0) {
      throw InvalidArgument("byte_strides of a destination must not be negative");
    }
    if (dims[i] > 1) end += static_cast<__int128>(dims[i] - 1) * strides[i];
  }
  if (end > static_cast<__int128>(size)) {
    throw InvalidArgument("the destination has " + std::to_string(size) +
                          " bytes, fewer than the array's layout needs");
  }
  return strides;
}

std::string LayoutText(std::span<const int64_t> minor_to_major) {
  std::string text = "{";
  for (const int64_t dim : minor_to_major) {
    if (text.size() > 1) text += ",";
    text += std::to_string(dim);
  }
  return text + "}";
}

std::string ShapeProto(DType dtype, std::span<const int64_t> dims, std::span<const int64_t> minor_to_major) {
  // XLA's PrimitiveType, indexed by PJRT_Buffer_Type (the order differs from 13 on).
  static constexpr std::array<uint8_t, 30> kPrimitiveTypes = {
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 19, 20, 23, 24, 25, 21, 22, 17, 26, 27, 28, 29, 33, 32};
  ProtoWriter layout;
  layout.Packed(1, minor_to_major);
  layout.Varint(16, 1);  // tail_padding_alignment_in_elements
  ProtoWriter shape;
  shape.Varint(2, kPrimitiveTypes[static_cast<size_t>(dtype)]);
  shape.Packed(3, dims);
  shape.Bytes(5, layout.bytes());
  shape.Packed(6, std::vector<int64_t>(dims.size(), 0));  // is_dynamic_dimension
  return shape.bytes();
}

}  // namespace pjrt_metal
