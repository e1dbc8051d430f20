#include "csrc/metal/mpsgraph.h"

#include <algorithm>
#include <numeric>

#include "csrc/metal/gpu_errors.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

// MPSNDArray takes a buffer at an offset from here on.
constexpr int64_t kMacosOfOffsets = 15;
// Before, matrices of 2^15 and more were multiplied wrongly: https://github.com/pytorch/pytorch/pull/117549.
constexpr int64_t kMacosOfLargeMatrices = 15;
constexpr int64_t kLargeMatrix = 1 << 15;

uint32_t DataType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kMpsFloat32;
    case DType::kF16:
      return kMpsFloat16;
    default:
      return kMpsBfloat16;
  }
}

// Autoreleased, as everything here that has no Ref.
template <typename Numbers>
Id Array(const Numbers& numbers) {
  const Id array = Send<Message::kArrayWithCapacity>(Of(Class::kNSMutableArray), numbers.size());
  for (const auto number : numbers) {
    Send<Message::kAddObject>(array, Send<Message::kNumberWithLongLong>(Of(Class::kNSNumber), int64_t{number}));
  }
  return array;
}

Id ArrayOf(std::initializer_list<Id> objects) {
  const Id array = Send<Message::kArrayWithCapacity>(Of(Class::kNSMutableArray), objects.size());
  for (const Id object : objects) Send<Message::kAddObject>(array, object);
  return array;
}

bool InOrder(const std::vector<uint32_t>& permutation) {
  return std::is_sorted(permutation.begin(), permutation.end());
}

// From memory's dimensions to the op's.
Id Viewed(Id graph, Id tensor, const LibraryView& view) {
  if (!InOrder(view.permutation)) {
    tensor = Send<Message::kTransposeTensor>(graph, tensor, Array(view.permutation), nullptr);
  }
  if (view.dims == view.shape) return tensor;
  return Send<Message::kReshapeTensor>(graph, tensor, Array(view.shape), nullptr);
}

// And back.
Id Stored(Id graph, Id tensor, const LibraryView& view) {
  std::vector<int64_t> permuted;
  std::vector<uint32_t> inverse(view.dims.size());
  for (uint32_t i = 0; i < view.permutation.size(); ++i) {
    permuted.push_back(view.dims[view.permutation[i]]);
    inverse[view.permutation[i]] = i;
  }
  if (permuted != view.shape) tensor = Send<Message::kReshapeTensor>(graph, tensor, Array(permuted), nullptr);
  if (InOrder(inverse)) return tensor;
  return Send<Message::kTransposeTensor>(graph, tensor, Array(inverse), nullptr);
}

Id ConvolutionDescriptor(const LibraryOp& op) {
  enum { kHeight, kWidth };
  enum { kTop, kBottom, kLeft, kRight };
  return Send<Message::kConvolutionDescriptor>(
      Of(GraphClass::kMPSGraphConvolution2DOpDescriptor), uint64_t{op.stride[kWidth]}, uint64_t{op.stride[kHeight]},
      uint64_t{op.dilation[kWidth]}, uint64_t{op.dilation[kHeight]}, uint64_t{op.groups}, uint64_t{op.padding[kLeft]},
      uint64_t{op.padding[kRight]}, uint64_t{op.padding[kTop]}, uint64_t{op.padding[kBottom]}, kGraphPaddingExplicit,
      op.data_layout == DataLayout::kNhwc ? kGraphNhwc : kGraphNchw,
      op.weights_layout == WeightsLayout::kHwio ? kGraphHwio : kGraphOihw);
}

Id Apply(Id graph, const LibraryOp& op, Id lhs, Id rhs) {
  switch (op.kind) {
    case LibraryKind::kMatmul:
      return Send<Message::kMatrixMultiplication>(graph, lhs, rhs, nullptr);
    case LibraryKind::kConvolution:
      return Send<Message::kConvolution>(graph, lhs, rhs, ConvolutionDescriptor(op), nullptr);
    case LibraryKind::kDataGradient:
      return Send<Message::kDataGradient>(graph, lhs, rhs, Array(op.result.shape), ConvolutionDescriptor(op), nullptr);
    case LibraryKind::kWeightsGradient:
      return Send<Message::kWeightsGradient>(graph, rhs, lhs, Array(op.result.shape), ConvolutionDescriptor(op),
                                             nullptr);
  }
  return nullptr;
}

Ref ShapedType(Id shape, uint32_t dtype) {
  const Id allocated = Send<Message::kAlloc>(Of(GraphClass::kMPSGraphShapedType));
  return Ref::Adopt(Send<Message::kInitShapedType>(allocated, shape, dtype));
}

// nullptr, and why on the log, if MPSGraph gives none.
LibraryCallRef Compile(Id device, const LibraryOp& op) {
  const Pool pool;
  auto call = std::make_shared<GraphCall>();
  call->name = Describe(op);
  call->dtype = DataType(op.dtype);
  const auto views = op.views();
  for (size_t i = 0; i < views.size(); ++i) call->shapes[i] = Ref::Retain(Array(views[i]->dims));

  const Ref graph = New(GraphClass::kMPSGraph);
  const Id feeds = Send<Message::kDictionaryWithCapacity>(Of(Class::kNSMutableDictionary), uint64_t{2});
  Id placeholders[2], operands[2];
  for (size_t i = 0; i < 2; ++i) {
    const Id shape = call->shapes[i].get();
    placeholders[i] = Send<Message::kPlaceholder>(graph.get(), shape, call->dtype, nullptr);
    operands[i] = Viewed(graph.get(), placeholders[i], *views[i]);
    Send<Message::kSetObjectForKey>(feeds, ShapedType(shape, call->dtype).get(), placeholders[i]);
  }
  const Id result = Stored(graph.get(), Apply(graph.get(), op, operands[0], operands[1]), op.result);
  // Level 1, the default, may take the Neural Engine and the CPU, with arithmetic of their own.
  const Ref descriptor = New(GraphClass::kMPSGraphCompilationDescriptor);
  Send<Message::kSetOptimizationLevel>(descriptor.get(), kGraphOptimizationLevel0);
  const Id target = Send<Message::kGraphDevice>(Of(GraphClass::kMPSGraphDevice), device);
  call->executable = Ref::Retain(
      Send<Message::kCompileGraph>(graph.get(), target, feeds, ArrayOf({result}), nullptr, descriptor.get()));
  const Id order = call->executable ? Send<Message::kFeedTensors>(call->executable.get()) : nullptr;
  if (order == nullptr || Send<Message::kCount>(order) != 2) {
    LogPhase("library: no mpsgraph", 0, call->name + ": it made no executable of two inputs");
    return nullptr;
  }
  const Id first = Send<Message::kObjectAtIndex>(order, uint64_t{0}),
           second = Send<Message::kObjectAtIndex>(order, uint64_t{1});
  if (first == placeholders[1] && second == placeholders[0]) {
    std::swap(call->feeds[0], call->feeds[1]);
  } else if (first != placeholders[0] || second != placeholders[1]) {
    LogPhase("library: no mpsgraph", 0, call->name + ": its executable names its inputs by other tensors");
    return nullptr;
  }
  return call;
}

// One of ours as MPSGraph takes it. It keeps the buffer.
Ref TensorData(const BoundBuffer& buffer, Id shape, const GraphCall& call) {
  const Id allocated = Send<Message::kAlloc>(Of(GraphClass::kMPSGraphTensorData));
  if (buffer.offset == 0) {
    return Ref::Adopt(Send<Message::kInitTensorDataBuffer>(allocated, buffer.buffer, shape, call.dtype));
  }
  const Id descriptor = Send<Message::kArrayDescriptor>(Of(GraphClass::kMPSNDArrayDescriptor), call.dtype, shape);
  SendIfAvailable<Message::kSetPreferPackedRows>(descriptor, true);  // rows would else be padded
  const Id bare = Send<Message::kAlloc>(Of(GraphClass::kMPSNDArray));
  const Ref array = Ref::Adopt(
      SendIfAvailable<Message::kInitArrayBuffer>(bare, buffer.buffer, buffer.offset, descriptor).value_or(nullptr));
  return Ref::Adopt(Send<Message::kInitTensorDataArray>(allocated, array.get()));
}

}  // namespace

LibraryCallRef GraphLibrary::Prepare(const LibraryOp& op, bool whole) {
  const auto refuse = [&](const std::string& why) {
    LogPhase("library: no mpsgraph", 0, Describe(op) + ": " + why);
    return nullptr;
  };
  if (!GetGraphRuntime().missing.empty()) return refuse("there is no " + GetGraphRuntime().missing);
  if (!whole && macos_.major < kMacosOfOffsets) return refuse("macOS before 15 takes whole buffers only");
  if (op.dtype == DType::kBF16 && macos_.major < 14) return refuse("macOS before 14 has no bfloat");
  if (op.kind == LibraryKind::kMatmul && macos_.major < kMacosOfLargeMatrices) {
    for (const LibraryView* view : op.views()) {
      if (std::ranges::any_of(view->shape, [](int64_t n) { return n >= kLargeMatrix; })) {
        return refuse("macOS before 15 multiplies large matrices wrongly");
      }
    }
  }
  const std::string key = Describe(op);
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(key);
  if (found != calls_.end()) return found->second;
  return calls_.emplace(key, Compile(device_.get(), op)).first->second;
}

Ref EncodeGraph(const GraphCall& call, Id command_buffer, std::span<const BoundBuffer, 3> buffers, uint64_t number) {
  const Pool pool;
  Ref data[3];
  for (size_t i = 0; i < 3; ++i) data[i] = TensorData(buffers[i], call.shapes[i].get(), call);
  const Id inputs = ArrayOf({data[call.feeds[0]].get(), data[call.feeds[1]].get()});
  const Id outer = Send<Message::kMpsCommandBuffer>(Of(GraphClass::kMPSCommandBuffer), command_buffer);
  const Ref descriptor = GraphFaults::Get().Descriptor(number);
  Send<Message::kEncodeGraph>(call.executable.get(), outer, inputs, ArrayOf({data[2].get()}), descriptor.get());
  return Ref::Retain(Send<Message::kRootCommandBuffer>(outer));
}

}  // namespace pjrt_metal::metal
