// What a Program says of a call of the vendor's library: a contraction in canonical form. The op's meaning is
// specified in mlir_lowering/program.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/runtime/dtype.h"

namespace pjrt_metal {

enum class LibraryKind : uint8_t { kMatmul = 0, kConvolution = 1, kDataGradient = 2, kWeightsGradient = 3 };
enum class DataLayout : uint8_t { kNchw = 0, kNhwc = 1 };
enum class WeightsLayout : uint8_t { kOihw = 0, kHwio = 1 };

// Row-major memory of `dims`, whose dimensions in the order of `permutation` are regrouped as `shape`.
struct LibraryView {
  std::vector<int64_t> dims;
  std::vector<uint32_t> permutation;
  std::vector<int64_t> shape;
};

struct LibraryOp {
  LibraryKind kind;
  DType dtype;
  LibraryView lhs, rhs, result;
  std::array<uint32_t, 2> stride, dilation;  // of height and width, as below
  std::array<uint32_t, 4> padding;           // top, bottom, left, right
  uint32_t groups;
  DataLayout data_layout;
  WeightsLayout weights_layout;

  std::array<const LibraryView*, 3> views() const { return {&lhs, &rhs, &result}; }
};

// What is wrong with it; empty: nothing. Afterwards nothing in it can overflow or contradict itself.
std::string Problem(const LibraryOp& op);
// Bytes of a view of a sound op.
uint64_t Bytes(const LibraryOp& op, const LibraryView& view);
// All of it as text, on one line: for people, and as a key.
std::string Describe(const LibraryOp& op);

}  // namespace pjrt_metal
