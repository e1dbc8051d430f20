#include "csrc/runtime/dtype.h"

#include <array>
#include <string>

#include "csrc/runtime/error.h"

namespace pjrt_metal {
namespace {

// Indexed by PJRT_Buffer_Type. A size of 0 marks numbers that are no type of ours.
constexpr std::array<DTypeInfo, 30> kTypes = {{
    {"invalid", 0},
    {"i1", 8},
    {"i8", 8},
    {"i16", 16},
    {"i32", 32},
    {"i64", 64},
    {"ui8", 8},
    {"ui16", 16},
    {"ui32", 32},
    {"ui64", 64},
    {"f16", 16},
    {"f32", 32},
    {"f64", 64},
    {"bf16", 16},
    {"complex<f32>", 64},
    {"complex<f64>", 128},
    {"f8E5M2", 8},
    {"f8E4M3FN", 8},
    {"f8E4M3B11FNUZ", 8},
    {"f8E5M2FNUZ", 8},
    {"f8E4M3FNUZ", 8},
    {"i4", 8},
    {"ui4", 8},
    {"token", 8},
    {"i2", 8},
    {"ui2", 8},
    {"f8E4M3", 8},
    {"f8E3M4", 8},
    {"f8E8M0FNU", 8},
    {"f4E2M1FN", 8},
}};

}  // namespace

bool IsKnown(uint8_t value) { return value < kTypes.size() && kTypes[value].host_bits != 0; }

const DTypeInfo& Info(DType dtype) {
  const auto value = static_cast<uint8_t>(dtype);
  if (!IsKnown(value)) {
    throw InvalidArgument("element type " + std::to_string(value) + " is not one of this plugin's");
  }
  return kTypes[value];
}

size_t DenseBytes(DType dtype, std::span<const int64_t> dims) {
  size_t bytes = Info(dtype).host_bits / 8;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) throw InvalidArgument("negative dimension " + std::to_string(dim));
    empty |= dim == 0;
    if (!empty && __builtin_mul_overflow(bytes, static_cast<size_t>(dim), &bytes)) {
      throw InvalidArgument("an array's size in bytes does not fit 64 bits");
    }
  }
  if (!empty && bytes > static_cast<size_t>(INT64_MAX)) {
    throw InvalidArgument("an array's size in bytes does not fit 63 bits");
  }
  return empty ? 0 : bytes;
}

}  // namespace pjrt_metal
