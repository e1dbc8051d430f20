// Element types. Values are PJRT_Buffer_Type's, so csrc/pjrt casts and mlir_lowering/dtypes.py repeats them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pjrt_metal {

enum class DType : uint8_t {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  kC64 = 14,
  kC128 = 15,
  kF8E5M2 = 16,
  kF8E4M3FN = 17,
  kF8E4M3B11FNUZ = 18,
  kF8E5M2FNUZ = 19,
  kF8E4M3FNUZ = 20,
  kS4 = 21,
  kU4 = 22,
  kToken = 23,
  kS2 = 24,
  kU2 = 25,
  kF8E4M3 = 26,
  kF8E3M4 = 27,
  kF8E8M0FNU = 28,
  kF4E2M1FN = 29,
};

struct DTypeInfo {
  std::string_view name;  // StableHLO's spelling: "f32", "i1", "ui8", "bf16", "complex<f32>"
  uint32_t host_bits;     // bits an element takes in device memory and in the host's arrays (sub-byte types: 8)
};

// Throws InvalidArgument for a type that PJRT defines and this table does not.
const DTypeInfo& Info(DType dtype);
bool IsKnown(uint8_t value);
// Bytes of a dense array. Throws InvalidArgument on a negative dimension or overflow.
size_t DenseBytes(DType dtype, std::span<const int64_t> dims);

}  // namespace pjrt_metal
