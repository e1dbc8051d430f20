// Drives csrc/metal's library calls against the fake MPSGraph; run by test_metal_device.py, one check a process.
#include "csrc/metal/mpsgraph.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "csrc/metal/gpu_errors.h"
#include "tests/metal/fixture.h"

namespace pjrt_metal::metal {
namespace {

// --- Descriptions ---

LibraryView Plain(std::vector<int64_t> shape) {
  std::vector<uint32_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  return {shape, order, shape};
}

LibraryOp Matmul(LibraryView lhs, LibraryView rhs, LibraryView result) {
  LibraryOp op{};
  op.kind = LibraryKind::kMatmul;
  op.dtype = DType::kF32;
  op.lhs = std::move(lhs);
  op.rhs = std::move(rhs);
  op.result = std::move(result);
  return op;
}

// No two of its numbers are alike, so that none can be given in another's place.
LibraryOp Convolution(LibraryKind kind, DataLayout data, WeightsLayout weights) {
  LibraryOp op{};
  op.kind = kind;
  op.dtype = DType::kF32;
  op.stride = {2, 3};
  op.dilation = {3, 2};
  op.padding = {1, 4, 2, 0};
  op.groups = 2;
  op.data_layout = data;
  op.weights_layout = weights;
  const bool nhwc = data == DataLayout::kNhwc;
  // (9 + 1 + 4 - (2 * 3 + 1)) / 2 + 1 = 4, (11 + 2 + 0 - (3 * 2 + 1)) / 3 + 1 = 3
  const LibraryView source = Plain(nhwc ? std::vector<int64_t>{2, 9, 11, 4} : std::vector<int64_t>{2, 4, 9, 11});
  const LibraryView result = Plain(nhwc ? std::vector<int64_t>{2, 4, 3, 6} : std::vector<int64_t>{2, 6, 4, 3});
  const LibraryView kernel =
      Plain(weights == WeightsLayout::kHwio ? std::vector<int64_t>{3, 4, 2, 6} : std::vector<int64_t>{6, 2, 3, 4});
  op.lhs = kind == LibraryKind::kDataGradient ? result : source;
  op.rhs = kind == LibraryKind::kWeightsGradient ? result : kernel;
  op.result = kind == LibraryKind::kConvolution ? result : kind == LibraryKind::kDataGradient ? source : kernel;
  return op;
}

// --- Elements ---

float Element(DType dtype, const std::byte* memory, int64_t i) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(memory)[i];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(memory)[i];
  if (dtype == DType::kBF16) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  const int exponent = bits >> 10 & 31;
  const float fraction = static_cast<float>(bits & 1023) / 1024;
  const float size = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
  return (bits & 0x8000) != 0 ? -size : size;
}

// Of a small whole number.
void SetElement(DType dtype, std::byte* memory, int64_t i, int value) {
  const auto number = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &number, sizeof bits);
  if (dtype == DType::kF32) {
    reinterpret_cast<float*>(memory)[i] = number;
  } else if (dtype == DType::kBF16) {
    reinterpret_cast<uint16_t*>(memory)[i] = static_cast<uint16_t>(bits >> 16);
  } else {
    const uint32_t half = value == 0 ? 0 : ((bits >> 13 & 0x3ff) | ((bits >> 23 & 0xff) - 112) << 10);
    reinterpret_cast<uint16_t*>(memory)[i] = static_cast<uint16_t>(half | (bits >> 16 & 0x8000));
  }
}

// The offset in memory of an index into the view's shape.
int64_t Offset(const LibraryView& view, std::initializer_list<int64_t> index) {
  int64_t flat = 0;
  size_t d = 0;
  for (const int64_t i : index) flat = flat * view.shape[d++] + i;
  std::vector<int64_t> at(view.dims.size());
  for (size_t i = view.dims.size(); i-- > 0;) {
    const int64_t extent = view.dims[view.permutation[i]];
    at[view.permutation[i]] = flat % extent;
    flat /= extent;
  }
  int64_t offset = 0;
  for (size_t i = 0; i < view.dims.size(); ++i) offset = offset * view.dims[i] + at[i];
  return offset;
}

// Calls add(offset in lhs, offset in rhs, offset in result) for every product of the op.
void ForEachProduct(const LibraryOp& op, const std::function<void(int64_t, int64_t, int64_t)>& add) {
  if (op.kind == LibraryKind::kMatmul) {
    const auto &a = op.lhs.shape, &b = op.rhs.shape;
    for (int64_t i = 0; i < a[0]; ++i)
      for (int64_t m = 0; m < a[1]; ++m)
        for (int64_t k = 0; k < a[2]; ++k)
          for (int64_t n = 0; n < b[2]; ++n) {
            add(Offset(op.lhs, {i, m, k}), Offset(op.rhs, {i, k, n}), Offset(op.result, {i, m, n}));
          }
    return;
  }
  const LibraryView *source = &op.lhs, *weights = &op.rhs, *result = &op.result;
  if (op.kind == LibraryKind::kDataGradient) std::swap(source, result);
  if (op.kind == LibraryKind::kWeightsGradient) std::swap(weights, result);
  const bool nhwc = op.data_layout == DataLayout::kNhwc, hwio = op.weights_layout == WeightsLayout::kHwio;
  const auto data = [&](const LibraryView& view, int64_t n, int64_t y, int64_t x, int64_t f) {
    return nhwc ? Offset(view, {n, y, x, f}) : Offset(view, {n, f, y, x});
  };
  const auto extent = [&](const LibraryView& view, int axis) { return view.shape[(nhwc ? 1 : 2) + axis]; };
  const auto& w = weights->shape;
  const int64_t kh = w[hwio ? 0 : 2], kw = w[hwio ? 1 : 3], inputs = w[hwio ? 2 : 1], outputs = w[hwio ? 3 : 0];
  for (int64_t n = 0; n < source->shape[0]; ++n)
    for (int64_t y = 0; y < extent(*result, 0); ++y)
      for (int64_t x = 0; x < extent(*result, 1); ++x)
        for (int64_t o = 0; o < outputs; ++o)
          for (int64_t i = 0; i < inputs; ++i)
            for (int64_t p = 0; p < kh; ++p)
              for (int64_t q = 0; q < kw; ++q) {
                const int64_t v = y * op.stride[0] + p * op.dilation[0] - op.padding[0];
                const int64_t u = x * op.stride[1] + q * op.dilation[1] - op.padding[2];
                if (v < 0 || v >= extent(*source, 0) || u < 0 || u >= extent(*source, 1)) continue;
                const int64_t group = o / (outputs / op.groups);
                const int64_t s = data(*source, n, v, u, group * inputs + i);
                const int64_t k = hwio ? Offset(*weights, {p, q, i, o}) : Offset(*weights, {o, i, p, q});
                const int64_t r = data(*result, n, y, x, o);
                if (op.kind == LibraryKind::kConvolution) add(s, k, r);
                if (op.kind == LibraryKind::kDataGradient) add(r, k, s);
                if (op.kind == LibraryKind::kWeightsGradient) add(s, r, k);
              }
}

// The arrays of an op, each at `offset` of an allocation, with small whole numbers in the operands.
struct Arrays {
  Arrays(Device& device, const LibraryOp& described, size_t offset) : op(described), at(offset) {
    EXPECT(Problem(op).empty());
    for (size_t i = 0; i < 3; ++i) {
      const LibraryView& view = *op.views()[i];
      memory[i] = device.Allocate(offset + Bytes(op, view));
      counts[i] = std::accumulate(view.dims.begin(), view.dims.end(), int64_t{1}, std::multiplies<>());
      for (int64_t e = 0; i < 2 && e < counts[i]; ++e) {
        SetElement(op.dtype, data(i), e, static_cast<int>((e * 7 + static_cast<int64_t>(i) * 3) % 5) - 2);
      }
    }
  }
  std::byte* data(size_t i) const { return memory[i]->data() + at; }
  std::vector<Binding> bindings() const {
    std::vector<Binding> bound;
    for (size_t i = 0; i < 3; ++i) bound.push_back({memory[i].get(), at, Bytes(op, *op.views()[i])});
    return bound;
  }
  // Whole numbers this small are exact in every type.
  void ExpectResult() const {
    std::vector<double> wanted(static_cast<size_t>(counts[2]));
    ForEachProduct(op, [&](int64_t a, int64_t b, int64_t c) {
      wanted[static_cast<size_t>(c)] += double{Element(op.dtype, data(0), a)} * double{Element(op.dtype, data(1), b)};
    });
    for (int64_t i = 0; i < counts[2]; ++i) {
      const float got = Element(op.dtype, data(2), i);
      if (got == wanted[static_cast<size_t>(i)]) continue;
      throw std::logic_error(Describe(op) + ": element " + std::to_string(i) + " is " + std::to_string(got) + ", not " +
                             std::to_string(wanted[static_cast<size_t>(i)]));
    }
  }

  LibraryOp op;
  size_t at;
  AllocationRef memory[3];
  int64_t counts[3] = {};
};

void Run(Device& device, const LibraryOp& op, size_t offset) {
  const Arrays arrays(device, op, offset);
  const LibraryCallRef call = device.PrepareLibraryCall(op, offset == 0);
  EXPECT(call != nullptr);
  EXPECT(device.PrepareLibraryCall(op, offset == 0) == call);
  auto encoder = device.NewEncoder();
  encoder->Call(*call, arrays.bindings());
  EXPECT(!Finish(*encoder));
  arrays.ExpectResult();
}

// In every type, at the start of its memory and within.
void RunAll(LibraryOp op) {
  const auto device = Only();
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    op.dtype = dtype;
    Run(*device, op, 0);
    Run(*device, op, 256);
  }
}

// --- Checks ---

const LibraryOp kSmall = Matmul(Plain({2, 3, 4}), Plain({2, 4, 5}), Plain({2, 3, 5}));

void Matrices() { RunAll(kSmall); }

// lhs: [k, batch, m], rhs: [batch, n, k], result: [n, m1, batch, m2] with m = (m1, m2)
void TransposedMatrices() {
  RunAll(Matmul({{4, 2, 6}, {1, 2, 0}, {2, 6, 4}}, {{2, 5, 4}, {0, 2, 1}, {2, 4, 5}},
                {{5, 3, 2, 2}, {2, 1, 3, 0}, {2, 6, 5}}));
}

template <LibraryKind kind>
void Convolutions() {
  for (const DataLayout data : {DataLayout::kNchw, DataLayout::kNhwc}) {
    for (const WeightsLayout weights : {WeightsLayout::kOihw, WeightsLayout::kHwio}) {
      RunAll(Convolution(kind, data, weights));
    }
  }
}

// One call of several reads what another wrote.
void CallsInOrder() {
  const auto device = Only();
  const Arrays first(*device, kSmall, 0);
  const Arrays second(*device, Matmul(Plain({2, 3, 5}), Plain({2, 5, 5}), Plain({2, 3, 5})), 0);
  const auto call = [&](Encoder& encoder, const Arrays& arrays, std::vector<Binding> bindings) {
    encoder.Call(*device->PrepareLibraryCall(arrays.op, true), bindings);
  };
  for (const char* mode : {"", "continue"}) {
    FakeFail(mode);
    auto encoder = device->NewEncoder();
    call(*encoder, first, first.bindings());
    const Binding copied[] = {{first.memory[2].get(), 0}, {second.memory[0].get(), 0}};
    encoder->Copy(copied[0], copied[1], 120);
    call(*encoder, second, second.bindings());
    EXPECT(!Finish(*encoder));
    first.ExpectResult();
    second.ExpectResult();
    std::memset(second.memory[2]->data(), 0, 120);
  }
}

// What MPSGraph commits does not pass a host step that is still to run.
void CallsWaitForHostSteps() {
  const auto device = Only();
  const Arrays arrays(*device, kSmall, 0);
  Allocation& lhs = *arrays.memory[0];
  const std::vector<std::byte> numbers(lhs.data(), lhs.data() + lhs.size());
  std::memset(lhs.data(), 0, lhs.size());
  for (const char* mode : {"", "continue"}) {
    FakeFail(mode);
    auto encoder = device->NewEncoder();
    encoder->Host([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::ranges::copy(numbers, lhs.data());
    });
    encoder->Call(*device->PrepareLibraryCall(kSmall, true), arrays.bindings());
    EXPECT(!Finish(*encoder));
    arrays.ExpectResult();
    std::memset(lhs.data(), 0, lhs.size());
    std::memset(arrays.memory[2]->data(), 0, arrays.memory[2]->size());
  }
}

// MPSGraph committed our command buffer; what fails in either is the submission's error.
void ContinuedErrors() {
  const auto device = Only();
  const Arrays arrays(*device, kSmall, 0);
  const LibraryCallRef call = device->PrepareLibraryCall(kSmall, true);
  auto encoder = device->NewEncoder();
  FakeFail("continue");
  encoder->Call(*call, arrays.bindings());
  EXPECT(encoder->SyncAndTime() > 0);
  arrays.ExpectResult();
  encoder->Call(*call, arrays.bindings());
  FakeFail("run");
  auto error = Finish(*encoder);
  EXPECT(error && error->code() == Code::kResourceExhausted);
  // Only in the one that MPSGraph committed.
  FakeFail("lose");
  encoder->Call(*call, arrays.bindings());
  error = Finish(*encoder);
  EXPECT(error && std::strstr(error->what(), "in MPSGraph's") != nullptr);
  encoder->Call(*call, arrays.bindings());
  try {
    encoder->Sync();
    EXPECT(false);
  } catch (const Error& thrown) {
    EXPECT(std::strstr(thrown.what(), "in MPSGraph's") != nullptr);
  }
  FakeFail("continue");
  encoder->Call(*call, arrays.bindings());
  // Given up here, as by an exception.
}

// Of a command buffer that MPSGraph made and committed we know only what its handler is told.
void ErrorsOfItsOwnCommandBuffers() {
  const auto device = Only();
  const Arrays arrays(*device, kSmall, 0);
  const LibraryCallRef call = device->PrepareLibraryCall(kSmall, true);
  auto encoder = device->NewEncoder();
  FakeFail("loseOwn");
  encoder->Call(*call, arrays.bindings());
  auto error = Finish(*encoder);
  EXPECT(error && Has(*error, Code::kResourceExhausted,
                      {"MPSGraph could not run a library call: out of GPU memory in MPSGraph's"}));
  FakeFail("");
  encoder->Call(*call, arrays.bindings());
  EXPECT(!Finish(*encoder));
  arrays.ExpectResult();
  // One that comes when its command buffer has completed is not lost.
  const uint64_t number = GraphFaults::Get().Open();
  EXPECT(!GraphFaults::Get().Close(number));
  GraphFaults::Get().Report(number, Internal("too late"));
  encoder->Call(*call, arrays.bindings());
  error = Finish(*encoder);
  EXPECT(error && Has(*error, Code::kInternal, {"too late"}));
  encoder->Call(*call, arrays.bindings());
  EXPECT(!Finish(*encoder));
}

void OlderSystems() {
  FakeMacos(14);
  const auto sonoma = Only();
  EXPECT(sonoma->PrepareLibraryCall(kSmall, false) == nullptr);
  LibraryOp large = Matmul(Plain({1, 32768, 2}), Plain({1, 2, 2}), Plain({1, 32768, 2}));
  EXPECT(sonoma->PrepareLibraryCall(large, true) == nullptr);
  LibraryOp bfloat = kSmall;
  bfloat.dtype = DType::kBF16;
  Run(*sonoma, bfloat, 0);
  FakeMacos(13);
  const auto ventura = Only();
  EXPECT(ventura->PrepareLibraryCall(bfloat, true) == nullptr);
  Run(*ventura, kSmall, 0);
  FakeMacos(15);
  EXPECT(Only()->PrepareLibraryCall(large, true) != nullptr);
}

void NoExecutable() {
  FakeFail("graph");
  EXPECT(Only()->PrepareLibraryCall(kSmall, true) == nullptr);
}

void WrongBindings() {
  const auto device = Only();
  const Arrays arrays(*device, kSmall, 0);
  const LibraryCallRef call = device->PrepareLibraryCall(kSmall, true);
  std::vector<Binding> bindings = arrays.bindings();
  bindings[1].offset = 8;
  auto encoder = device->NewEncoder();
  try {
    encoder->Call(*call, bindings);
  } catch (const Error& error) {
    EXPECT(std::strstr(error.what(), "matmul f32") != nullptr && std::strstr(error.what(), "offset 8") != nullptr);
    return;
  }
  EXPECT(false);
}

constexpr Check kChecks[] = {
    {"matrices", Matrices},
    {"transposed_matrices", TransposedMatrices},
    {"convolution", Convolutions<LibraryKind::kConvolution>},
    {"data_gradient", Convolutions<LibraryKind::kDataGradient>},
    {"weights_gradient", Convolutions<LibraryKind::kWeightsGradient>},
    {"calls_in_order", CallsInOrder},
    {"calls_wait_for_host_steps", CallsWaitForHostSteps},
    {"continued_errors", ContinuedErrors},
    {"errors_of_its_own_command_buffers", ErrorsOfItsOwnCommandBuffers},
    {"older_systems", OlderSystems},
    {"no_executable", NoExecutable},
    {"wrong_bindings", WrongBindings},
};

}  // namespace
}  // namespace pjrt_metal::metal

int main(int, char** arguments) { return pjrt_metal::metal::RunAgainstFake(arguments[1], pjrt_metal::metal::kChecks); }
