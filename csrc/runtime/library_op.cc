#include "csrc/runtime/library_op.h"

#include <algorithm>
#include <limits>

namespace pjrt_metal {
namespace {

// Of every extent and parameter, so that sums of products of two fit 64 bits.
constexpr int64_t kMaxNumber = std::numeric_limits<int32_t>::max();
// MPSGraph's tensors have up to 16 dimensions.
constexpr size_t kMaxRank = 16;

constexpr const char* kKinds[] = {"matmul", "convolution", "data gradient", "weights gradient"};

std::string ViewProblem(const LibraryView& view, size_t rank) {
  if (view.dims.empty() || view.dims.size() > kMaxRank || view.dims.size() != view.permutation.size()) {
    return "has a view of the wrong rank";
  }
  if (view.shape.size() != rank) return "has a shape of the wrong rank";
  std::vector<bool> seen(view.dims.size());
  for (const uint32_t d : view.permutation) {
    if (d >= seen.size() || seen[d]) return "has a view whose permutation is none";
    seen[d] = true;
  }
  int64_t sizes[] = {1, 1};
  int i = 0;
  for (const auto* extents : {&view.dims, &view.shape}) {
    for (const int64_t extent : *extents) {
      if (extent < 1 || extent > kMaxNumber || __builtin_mul_overflow(sizes[i], extent, &sizes[i]) ||
          sizes[i] > std::numeric_limits<int64_t>::max() / 8) {
        return "has a view that is empty or too large";
      }
    }
    ++i;
  }
  return sizes[0] == sizes[1] ? "" : "has a view whose shape has another size";
}

std::string MatmulProblem(const LibraryOp& op) {
  const auto &a = op.lhs.shape, &b = op.rhs.shape, &c = op.result.shape;
  const bool fits = a[0] == b[0] && a[0] == c[0] && a[1] == c[1] && a[2] == b[1] && b[2] == c[2];
  return fits ? "" : "has shapes that do not fit";
}

std::string ConvolutionProblem(const LibraryOp& op) {
  const LibraryView *source = &op.lhs, *weights = &op.rhs, *result = &op.result;
  if (op.kind == LibraryKind::kDataGradient) std::swap(source, result);
  if (op.kind == LibraryKind::kWeightsGradient) std::swap(weights, result);
  const bool nhwc = op.data_layout == DataLayout::kNhwc, hwio = op.weights_layout == WeightsLayout::kHwio;
  const size_t feature = nhwc ? 3 : 1, height = nhwc ? 1 : 2;
  const int64_t inputs = weights->shape[hwio ? 2 : 1], outputs = weights->shape[hwio ? 3 : 0];
  if (op.groups < 1 || op.groups > kMaxNumber || source->shape[0] != result->shape[0] ||
      source->shape[feature] != inputs * op.groups || result->shape[feature] != outputs || outputs % op.groups != 0) {
    return "has batches or features that do not fit";
  }
  for (size_t i = 0; i < 2; ++i) {
    const int64_t low = op.padding[2 * i], high = op.padding[2 * i + 1];
    const int64_t stride = op.stride[i], dilation = op.dilation[i];
    if (std::max({low, high, stride, dilation}) > kMaxNumber || std::min(stride, dilation) < 1) {
      return "has a window that is empty or too large";
    }
    const int64_t kernel = weights->shape[(hwio ? 0 : 2) + i];
    const int64_t left = source->shape[height + i] + low + high - (kernel - 1) * dilation - 1;
    if (left < 0 || left / stride + 1 != result->shape[height + i]) return "has windows that do not fit";
  }
  return "";
}

}  // namespace

std::string Problem(const LibraryOp& op) {
  const auto why = [&](const std::string& problem) {
    return problem.empty() ? ""
                           : std::string("a library call (") + kKinds[static_cast<size_t>(op.kind)] + ") " + problem;
  };
  if (op.dtype != DType::kF32 && op.dtype != DType::kF16 && op.dtype != DType::kBF16) {
    return why("has an element type that is not f32, f16 or bf16");
  }
  const bool matmul = op.kind == LibraryKind::kMatmul;
  for (const LibraryView* view : op.views()) {
    if (const std::string problem = ViewProblem(*view, matmul ? 3 : 4); !problem.empty()) return why(problem);
  }
  return why(matmul ? MatmulProblem(op) : ConvolutionProblem(op));
}

uint64_t Bytes(const LibraryOp& op, const LibraryView& view) { return DenseBytes(op.dtype, view.dims); }

std::string Describe(const LibraryOp& op) {
  std::string text = std::string(kKinds[static_cast<size_t>(op.kind)]) + ' ' + std::string(Info(op.dtype).name);
  const auto list = [&](const char* name, const auto& numbers) {
    text += name;
    for (const auto number : numbers) text += (text.back() == '[' ? "" : ",") + std::to_string(number);
    text += ']';
  };
  for (const LibraryView* view : op.views()) {
    list(" dims[", view->dims);
    list(" by[", view->permutation);
    list(" as[", view->shape);
  }
  if (op.kind == LibraryKind::kMatmul) return text;
  list(" stride[", op.stride);
  list(" dilation[", op.dilation);
  list(" padding[", op.padding);
  return text + " groups " + std::to_string(op.groups) + (op.data_layout == DataLayout::kNhwc ? " NHWC" : " NCHW") +
         (op.weights_layout == WeightsLayout::kHwio ? " HWIO" : " OIHW");
}

}  // namespace pjrt_metal
