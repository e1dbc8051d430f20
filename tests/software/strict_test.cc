// Drives the strict software device; run by test_strict.py, one check a process.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>

#include "csrc/software/strict_device.h"
#include "tests/checks.h"

namespace pjrt_metal::software {
namespace {

constexpr char kPreamble[] = "#include <metal_stdlib>\nusing namespace metal;\n";

// All kernels here have one input, one output, and these builtins.
const std::vector<ParamKind> kParams = {ParamKind::kInput,
                                        ParamKind::kOutput,
                                        ParamKind::kThreadPositionInGrid,
                                        ParamKind::kThreadgroupPositionInGrid,
                                        ParamKind::kThreadPositionInThreadgroup,
                                        ParamKind::kThreadIndexInSimdgroup,
                                        ParamKind::kSimdgroupIndexInThreadgroup,
                                        ParamKind::kThreadsPerThreadgroup};

KernelSource Kernel(const std::string& type, const std::string& body) {
  return {"k_test",
          "// by hand\nkernel void k_test(device const " + type + "* __restrict x [[buffer(0)]], device " + type +
              "* __restrict out [[buffer(1)]],\n"
              "    uint3 tid [[thread_position_in_grid]], uint3 group [[threadgroup_position_in_grid]],\n"
              "    uint3 local [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],\n"
              "    uint simd [[simdgroup_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]]) {\n" +
              body + "}\n",
          kParams};
}

AllocationRef Store(Device& device, const void* data, size_t bytes) {
  const AllocationRef memory = device.Allocate(bytes);
  if (bytes > 0) std::memcpy(memory->data(), data, bytes);
  return memory;
}

template <class T>
AllocationRef Store(Device& device, const std::vector<T>& values) {
  return Store(device, values.data(), values.size() * sizeof(T));
}

// What the kernel leaves in an output of `count` elements that were `before`.
template <class T>
std::vector<T> Run(const KernelSource& kernel, const std::vector<T>& x, size_t count, const Grid& grid,
                   T before = T(-1)) {
  const auto device = CreateStrict("apple8");
  const PipelineRef pipeline = device->Compile(kPreamble, {&kernel, 1})[0];
  const AllocationRef in = Store(*device, x), out = Store(*device, std::vector<T>(count, before));
  const auto encoder = device->NewEncoder();
  const Binding bindings[] = {{in.get(), 0}, {out.get(), 0}};
  encoder->Dispatch(*pipeline, bindings, {}, grid);
  encoder->Commit(nullptr);
  const T* data = reinterpret_cast<const T*>(out->data());
  return {data, data + count};
}

std::vector<float> Numbers(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 7 % 23) - 9;
  return values;
}

// The launch fails, and the message holds all texts as well as the kernel's name and what the launch is for.
void ExpectViolation(const KernelSource& kernel, size_t inputs, size_t outputs, const Grid& grid,
                     std::initializer_list<const char*> texts) {
  std::string message;
  const Label label{"stablehlo.test", "", "by hand", "what the test wants"};
  Grid labelled = grid;
  labelled.label = &label;
  try {
    Run<float>(kernel, Numbers(inputs), outputs, labelled);
  } catch (const Error& error) {
    EXPECT(error.code() == Code::kInternal);
    message = error.what();
  }
  if (message.empty()) throw std::logic_error("nothing was thrown by " + kernel.source);
  std::vector<std::string> wanted(texts.begin(), texts.end());
  wanted.insert(wanted.end(), {"k_test", "what the test wants"});
  for (const std::string& text : wanted) {
    if (message.find(text) == std::string::npos) throw std::logic_error("no '" + text + "' in: " + message);
  }
}

// Sums of rows of 300, a threadgroup each: strides, SIMD groups, then the first SIMD group.
constexpr char kRowSum[] = R"(
  threadgroup float partial[8];
  float sum = 0.0f;
  for (uint i = local.x; i < 300u; i += size.x) sum += x[group.x * 300u + i];
  sum = simd_sum(sum);
  if (lane == 0u) partial[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0u) {
    const float total = simd_sum(lane < size.x / 32u ? partial[lane] : 0.0f);
    if (lane == 0u) out[group.x] = total;
  }
)";

void CheckRowSum() {
  const std::vector<float> x = Numbers(5 * 300);
  for (const uint32_t threads : {32u, 64u, 256u}) {
    const std::vector<float> sums = Run(Kernel("float", kRowSum), x, 5, {{5 * threads, 1, 1}, {threads, 1, 1}});
    for (size_t row = 0; row < 5; ++row) {
      EXPECT(sums[row] == std::accumulate(x.begin() + 300 * row, x.begin() + 300 * (row + 1), 0.0f));
    }
  }
}

// c = a b of 16 x 24 and 24 x 8 matrices in x, one SIMD group for 8 x 8 elements of c; a through
// threadgroup memory.
std::string Product(const std::string& type) {
  const std::string matrix = "simdgroup_" + type + "8x8";
  return "  threadgroup " + type + " tile[8][8 + 4];\n  " + matrix + " a, b;\n" +
         "  simdgroup_float8x8 c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);\n" +
         R"(
  device const auto* bs = x + 16 * 24;
  for (uint k = 0; k < 24u; k += 8u) {
    for (uint i = lane; i < 64u; i += 32u) tile[i / 8u][i % 8u] = x[(group.x * 8u + i / 8u) * 24u + k + i % 8u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_load(a, &tile[0][0], 12);
    simdgroup_load(b, bs, 8, ulong2(0, k));
    simdgroup_multiply_accumulate(c, a, b, c);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  c.thread_elements() *= 2.0f;
)" +
         (type == "float" ? "  simdgroup_store(c, out + group.x * 64u, 8);\n"
                          : "  threadgroup float result[64];\n  simdgroup_store(c, result, 8);\n"
                            "  simdgroup_barrier(mem_flags::mem_threadgroup);\n"
                            "  for (uint i = lane; i < 64u; i += 32u) out[group.x * 64u + i] = " +
                                type + "(result[i]);\n");
}

// Of numbers that are integers of few bits.
float HalfValue(uint16_t bits) {
  const float magnitude =
      static_cast<float>((bits & 0x3ff) | 0x400) * std::exp2f(static_cast<float>(bits >> 10 & 31) - 25);
  return (bits & 0x7fff) == 0 ? 0.0f : bits >> 15 != 0 ? -magnitude : magnitude;
}
uint16_t HalfBits(float x) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (HalfValue(static_cast<uint16_t>(bits)) == x) return static_cast<uint16_t>(bits);
  }
  throw std::logic_error("no such half");
}

void CheckProduct() {
  std::vector<float> x(16 * 24 + 24 * 8);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 5) - 2;
  std::vector<float> wanted(16 * 8);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      for (size_t k = 0; k < 24; ++k) wanted[i * 8 + j] += 2 * x[i * 24 + k] * x[16 * 24 + k * 8 + j];
    }
  }
  const Grid grid = {{64, 1, 1}, {32, 1, 1}};
  EXPECT(Run(Kernel("float", Product("float")), x, 16 * 8, grid) == wanted);
  std::vector<uint16_t> halves, wanted_halves;
  for (const float value : x) halves.push_back(HalfBits(value));
  for (const float value : wanted) wanted_halves.push_back(HalfBits(value));
  EXPECT(Run<uint16_t>(Kernel("half", Product("half")), halves, 16 * 8, grid) == wanted_halves);
}

constexpr Grid kTwoGroups = {{128, 1, 1}, {64, 1, 1}};

std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  if (at == std::string::npos) throw std::logic_error("no '" + what + "' to replace");
  return text.replace(at, what.size(), by);
}

void CheckMissingBarrier() {
  const std::string barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
  const Grid grid = {{5 * 256, 1, 1}, {256, 1, 1}};
  ExpectViolation(Kernel("float", Replaced(kRowSum, barrier, "")), 1500, 5, grid,
                  {"reads 4 bytes at byte", "of threadgroup memory partial (32 bytes)", "no thread has written"});
  // It orders another kind of memory.
  ExpectViolation(Kernel("float", Replaced(kRowSum, barrier, "threadgroup_barrier(mem_flags::mem_device);")), 1500, 5,
                  grid,
                  {"thread (1, 0, 0) of threadgroup (0, 0, 0) reads 4 bytes at byte 4 of threadgroup memory partial",
                   "thread (32, 0, 0) of threadgroup (0, 0, 0) wrote with no barrier in between"});
  // One that orders a SIMD group is enough only within it.
  const std::string exchange =
      "  threadgroup float tile[64];\n  tile[local.x] = x[tid.x];\n"
      "  simdgroup_barrier(mem_flags::mem_threadgroup);\n  out[tid.x] = tile[local.x ^ 1u];\n";
  const std::vector<float> x = Numbers(128), swapped = Run(Kernel("float", exchange), x, 128, kTwoGroups);
  for (size_t i = 0; i < 128; ++i) EXPECT(swapped[i] == x[i ^ 1]);
  ExpectViolation(Kernel("float", Replaced(exchange, "^ 1u", "^ 32u")), 128, 128, kTwoGroups,
                  {"reads 4 bytes at byte 128 of threadgroup memory tile", "no thread has written"});
}

// A tile is filled again while others may still read it: no value is ever missing.
void CheckMissingSecondBarrier() {
  const std::string body =
      "  threadgroup float tile[64];\n  float sum = 0.0f;\n  for (uint k = 0; k < 2u; ++k) {\n"
      "    tile[local.x] = x[tid.x + 128u * k];\n    threadgroup_barrier(mem_flags::mem_threadgroup);\n"
      "    sum += tile[(local.x + 1u) % 64u];\n    threadgroup_barrier(mem_flags::mem_threadgroup); // 2\n  }\n"
      "  out[tid.x] = sum;\n";
  const std::vector<float> x = Numbers(256), sums = Run(Kernel("float", body), x, 128, kTwoGroups);
  for (size_t i = 0; i < 128; ++i)
    EXPECT(sums[i] == x[i / 64 * 64 + (i + 1) % 64] + x[128 + i / 64 * 64 + (i + 1) % 64]);
  const std::string faulty = Replaced(body, "threadgroup_barrier(mem_flags::mem_threadgroup); // 2", "");
  ExpectViolation(Kernel("float", faulty), 256, 128, kTwoGroups,
                  {"writes 4 bytes at byte", "of threadgroup memory tile", "read with no barrier in between"});
}

void CheckDivergence() {
  const auto expect = [](const std::string& body, std::initializer_list<const char*> texts) {
    ExpectViolation(Kernel("float", body), 128, 128, kTwoGroups, texts);
  };
  expect("  if (local.x < 32u) threadgroup_barrier(mem_flags::mem_none);\n",
         {"barrier divergence", "thread (0, 0, 0) of threadgroup (0, 0, 0) is at threadgroup_barrier at line 6",
          "thread (32, 0, 0) of threadgroup (0, 0, 0) has ended"});
  expect(
      "  if (lane < 8u)\n    threadgroup_barrier(mem_flags::mem_none);\n"
      "  else\n    threadgroup_barrier(mem_flags::mem_none);\n",
      {"barrier divergence", "at line 7", "thread (8, 0, 0)", "at line 9"});
  expect("  if (lane == 3u) simdgroup_barrier(mem_flags::mem_none);\n",
         {"barrier divergence", "thread (3, 0, 0)", "simdgroup_barrier at line 6", "has ended"});
  expect("  for (uint i = 0; i < lane; ++i) threadgroup_barrier(mem_flags::mem_none);\n", {"barrier divergence"});
  expect("  const float y = x[tid.x];\n  out[tid.x] = lane < 16u\n    ? simd_sum(y)\n    : simd_max(y);\n",
         {"barrier divergence", "simd_sum at line 8", "simd_max at line 9"});
  expect("  if (local.x == 5u) threadgroup_barrier(mem_flags::mem_none); else out[tid.x] = simd_sum(1.0f);\n",
         {"barrier divergence", "thread (0, 0, 0)", "simd_sum", "thread (5, 0, 0)", "threadgroup_barrier"});
  expect("  simdgroup_float8x8 m;\n  if (lane != 31u) simdgroup_load(m, x);\n", {"needs all 32 lanes"});
}

void CheckBounds() {
  const auto expect = [](const std::string& body, std::initializer_list<const char*> texts) {
    ExpectViolation(Kernel("float", body), 128, 128, kTwoGroups, texts);
  };
  expect(
      "  out[tid.x] = x[tid.x + 1u];\n",
      {"thread (63, 0, 0) of threadgroup (1, 0, 0) reads 4 bytes at byte 512 of buffer x (512 bytes), which is out"});
  expect("  out[int(tid.x) - 1] = 0.0f;\n",
         {"thread (0, 0, 0) of threadgroup (0, 0, 0) writes 4 bytes at byte -4 of buffer out (512 bytes)"});
  expect(
      "  device const float* p = x + 4u * tid.x;\n  if (tid.x > 30u) out[0] = float4(*(device const packed_float4*)(p "
      "+ 1)).w;\n",
      {"thread (31, 0, 0)", "at byte 5", "of buffer x", "out of bounds"});
  expect(
      "  threadgroup float tile[64], other[64];\n  threadgroup float* p = tile;\n  p[local.x + 1u] = x[tid.x];\n  "
      "other[local.x] = 0.0f;\n",
      {"thread (63, 0, 0)", "writes 4 bytes at byte 256 of threadgroup memory tile (256 bytes)"});
  expect("  threadgroup float tile[2][32 + 1];\n  threadgroup float (*rows)[33] = tile;\n  rows[2][0] = 0.0f;\n",
         {"byte 264 of threadgroup memory tile (264 bytes)"});
  expect("  *const_cast<device float*>(x) = 1.0f;\n", {"writes 4 bytes at byte 0 of buffer x", "is constant"});
  expect("  *(device float*)(ulong(tid.x)) = 1.0f;\n", {"out of bounds of everything"});
}

void CheckAlignment() {
  const auto expect = [](const std::string& body, std::initializer_list<const char*> texts) {
    ExpectViolation(Kernel("float", body), 128, 128, kTwoGroups, texts);
  };
  const auto add = [](const std::string& type) {
    return "  " + type + " v = *(device const " + type + "*)(x + 1);\n  out[tid.x] = v[0] + v[3];\n";
  };
  expect(add("float4"), {"thread (0, 0, 0)", "at line 6", "is not aligned"});
  const std::vector<float> x = Numbers(128);
  EXPECT(Run(Kernel("float", add("packed_float4")), x, 128, kTwoGroups) == std::vector<float>(128, x[1] + x[4]));
  expect("  float own[4] = {};\n  own[tid.x] = 1.0f;\n  out[tid.x] = own[0] + own[3];\n",
         {"thread (4, 0, 0)", "at line 7", "is indexed out of its bounds"});
  expect("  threadgroup float tile[64];\n  tile[local.x + 1u] = 1.0f;\n",
         {"thread (63, 0, 0)", "at line 7", "is indexed out of its bounds"});
}

// Every builtin, in a grid whose last threadgroups are smaller.
void CheckBuiltins() {
  KernelSource kernel = {
      "k_test",
      "kernel void k_test(device int* out [[buffer(0)]], constant uint2& shape [[buffer(1)]],\n"
      "    uint3 tid [[thread_position_in_grid]], uint3 group [[threadgroup_position_in_grid]],\n"
      "    uint3 local [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],\n"
      "    uint simd [[simdgroup_index_in_threadgroup]], uint3 size [[threads_per_threadgroup]],\n"
      "    uint3 groups [[threadgroups_per_grid]]) {\n"
      "  const uint number = local.x + size.x * (local.y + size.y * local.z);\n"
      "  const bool good = all(tid == group * uint3(16u, 4u, 1u) + local) && all(local < size)\n"
      "      && all(groups == uint3(3u, 2u, 2u)) && lane == number % 32u && simd == number / 32u\n"
      "      && size.x == (group.x == 2u ? 5u : 16u) && size.y == (group.y == 1u ? 3u : 4u) && size.z == 1u;\n"
      "  out[tid.x + shape.x * (tid.y + shape.y * tid.z)] += good ? 1 : 100;\n}\n",
      {ParamKind::kOutput, ParamKind::kArgs, ParamKind::kThreadPositionInGrid, ParamKind::kThreadgroupPositionInGrid,
       ParamKind::kThreadPositionInThreadgroup, ParamKind::kThreadIndexInSimdgroup,
       ParamKind::kSimdgroupIndexInThreadgroup, ParamKind::kThreadsPerThreadgroup, ParamKind::kThreadgroupsPerGrid}};
  const auto device = CreateStrict("apple7");
  const PipelineRef pipeline = device->Compile(kPreamble, {&kernel, 1})[0];
  constexpr size_t kCount = 37 * 7 * 2;
  const AllocationRef out = Store(*device, std::vector<int>(kCount));
  const Binding binding = {out.get(), 0};
  const uint32_t shape[] = {37, 7};
  device->NewEncoder()->Dispatch(*pipeline, {&binding, 1}, std::as_bytes(std::span(shape)), {{37, 7, 2}, {16, 4, 1}});
  const int* data = reinterpret_cast<const int*>(out->data());
  EXPECT(std::count(data, data + kCount, 1) == static_cast<ptrdiff_t>(kCount));
}

// Each line of a body stores whether a SIMD function does what MSL says, for lanes that hold their
// number's square.
void CheckSimdFunctions() {
  const char* conditions[] = {
      "simd_sum(v) == 10416",
      "simd_product(lane < 3u ? v + 1 : 1) == 10",
      "simd_min(v - 5) == -5 && simd_max(v) == 961",
      "simd_and(v | 8) == 8 && simd_or(v) == 1021 && simd_xor(int(lane == 7u ? 5u : 0u)) == 5",
      "simd_broadcast(v, 5) == 25 && simd_broadcast_first(v) == 0",
      "simd_shuffle(v, ushort(31u - lane)) == int((31u - lane) * (31u - lane))",
      "simd_shuffle_xor(v, 1) == int((lane ^ 1u) * (lane ^ 1u))",
      "simd_shuffle_up(v, 2) == int(lane < 2u ? lane * lane : (lane - 2u) * (lane - 2u))",
      "simd_shuffle_down(v, 2) == int(lane > 29u ? lane * lane : (lane + 2u) * (lane + 2u))",
      "simd_shuffle_rotate_up(v, 1) == int((lane + 31u) % 32u * ((lane + 31u) % 32u))",
      "simd_shuffle_rotate_down(v, 1) == int((lane + 1u) % 32u * ((lane + 1u) % 32u))",
      "simd_prefix_inclusive_sum(int(lane)) == int(lane * (lane + 1u) / 2u)",
      "simd_prefix_exclusive_sum(int(lane)) == int(lane * (lane - 1u) / 2u)",
      "simd_prefix_exclusive_product(2.0f) == exp2(float(lane)) && simd_prefix_inclusive_product(1) == 1",
      "simd_all(v >= 0) && !simd_all(v > 0) && simd_any(v == 4) && !simd_any(v == 5)",
      "ulong(simd_ballot(lane % 3u == 1u)) == 0x92492492ul && simd_is_first() == (lane == 0u)",
      "all(simd_sum(float4(1.0f, 2.0f, 3.0f, float(lane))) == float4(32.0f, 64.0f, 96.0f, 496.0f))",
      "simd_max(half(float(lane))) == half(31.0f) && simd_sum(bfloat(1.0f)) == bfloat(32.0f)",
  };
  std::string body = "  const int v = int(lane * lane);\n  bool good;\n";
  size_t count = 0;
  for (const char* condition : conditions) {
    body += std::string("  good = ") + condition + ";\n  out[tid.x + 128u * " + std::to_string(count++) +
            "u] = good ? 1 : 0;\n";
  }
  const std::vector<int> good = Run(Kernel("int", body), std::vector<int>(1), 128 * count, kTwoGroups);
  for (size_t i = 0; i < good.size(); ++i) {
    if (good[i] != 1) throw std::logic_error("lane " + std::to_string(i % 32) + ": " + conditions[i / 128]);
  }
  // Lanes that have ended take no part.
  const std::vector<float> sums = Run(Kernel("float", "  if (tid.x >= 100u) return;\n  out[tid.x] = simd_sum(1.0f);\n"),
                                      Numbers(1), 100, kTwoGroups);
  EXPECT(std::count(sums.begin(), sums.end(), 32.0f) == 96 && std::count(sums.begin(), sums.end(), 4.0f) == 4);
  ExpectViolation(Kernel("float", "  if (lane == 9u) return;\n  out[tid.x] = simd_shuffle_xor(1.0f, 1);\n"), 1, 128,
                  kTwoGroups, {"thread (8, 0, 0)", "simd_shuffle_xor at line 7", "lane that is not active"});
}

// Bindings into one allocation: each ends where it says, and what they share is shared.
void CheckBindings() {
  const KernelSource kernel = Kernel("float", "  out[tid.x] = x[tid.x] + 1.0f;\n");
  const auto device = CreateStrict("apple9");
  const PipelineRef pipeline = device->Compile(kPreamble, {&kernel, 1})[0];
  const std::vector<float> numbers = Numbers(256);
  const AllocationRef arena = Store(*device, numbers);
  const auto run = [&](size_t from, size_t to, size_t bytes, uint32_t threads) {
    const Binding bindings[] = {{arena.get(), from, bytes}, {arena.get(), to, bytes}};
    device->NewEncoder()->Dispatch(*pipeline, bindings, {}, {{threads, 1, 1}, {0, 0, 0}});
  };
  const auto expect = [](std::initializer_list<const char*> texts, const auto& function) {
    try {
      function();
    } catch (const Error& error) {
      for (const char* text : texts) {
        if (std::strstr(error.what(), text) == nullptr) throw std::logic_error(error.what());
      }
      return;
    }
    throw std::logic_error("nothing was thrown");
  };
  expect({"thread (100, 0, 0)", "reads 4 bytes at byte 400 of buffer x (400 bytes)"}, [&] { run(0, 512, 400, 101); });
  expect({"buffer x has 600 bytes at offset 512"}, [&] { run(512, 0, 600, 1); });
  expect({"buffer out", "read with no barrier"}, [&] { run(4, 0, 512, 128); });
  const float* data = reinterpret_cast<const float*>(arena->data());
  EXPECT(std::equal(numbers.begin(), numbers.end(), data));
  run(0, 512, 400, 100);
  run(0, 0, 512, 128);  // in place
  for (size_t i = 0; i < 128; ++i) {
    EXPECT(data[i] == numbers[i] + 1);
    EXPECT(data[128 + i] == (i < 100 ? numbers[i] + 1 : numbers[128 + i]));
  }
  expect({"(33, 32, 1) threads in a threadgroup"}, [&] { Run(kernel, numbers, 256, {{33, 32, 1}, {33, 32, 1}}); });
}

void CheckThreadgroupMemory() {
  const auto size = [](int floats) {
    return Kernel("float", "  threadgroup float small[4];\n  threadgroup float tile[" + std::to_string(floats) +
                               "];\n  tile[local.x] = small[local.x % 4u] = 2.0f;\n  out[tid.x] = tile[local.x];\n");
  };
  EXPECT(Run(size(8192 - 4), Numbers(128), 128, kTwoGroups) == std::vector<float>(128, 2.0f));
  ExpectViolation(size(8192 - 3), 128, 128, kTwoGroups, {"tile", "at line 7", "32772 bytes", "32768"});
  ExpectViolation(Kernel("float", "  threadgroup float tile[64];\n  out[tid.x] = tile[local.x];\n"), 128, 128,
                  kTwoGroups, {"reads 4 bytes at byte 0 of threadgroup memory tile", "which no thread has written"});
  // What the first threadgroup wrote is not there for the second.
  ExpectViolation(Kernel("float",
                         "  threadgroup float tile[64];\n  if (group.x == 0u) tile[local.x] = 1.0f;\n"
                         "  out[tid.x] = tile[local.x];\n"),
                  128, 128, kTwoGroups, {"of threadgroup (1, 0, 0) reads", "which no thread has written"});
}

void CheckOrder() {
  ExpectViolation(Kernel("float", "  out[0] = float(tid.x);\n"), 1, 1, kTwoGroups,
                  {"depends on the order of threads", "at byte 0 of buffer out (4 bytes)", "0x42fe0000", "forward",
                   "0x00000000 backward"});
  ExpectViolation(Kernel("float",
                         "  atomic_fetch_add_explicit((device atomic_float*)out, tid.x == 5u ? 1e9f : 1.0f,\n"
                         "      memory_order_relaxed);\n"),
                  1, 1, kTwoGroups, {"depends on the order of threads"});
  ExpectViolation(Kernel("float", "  out[tid.x] = x[tid.x];\n  if (tid.x > 0u) out[tid.x] += out[tid.x - 1u];\n"), 128,
                  128, kTwoGroups, {"buffer out", "thread (0, 0, 0) of threadgroup (0, 0, 0) wrote with no barrier"});
  // Integers may be added in any order.
  const std::vector<int> sum =
      Run<int>(Kernel("int", "  atomic_fetch_add_explicit((device atomic_int*)out, x[tid.x], memory_order_relaxed);\n"),
               std::vector<int>(128, 3), 1, kTwoGroups);
  EXPECT(sum[0] == 128 * 3 - 1);
}

constexpr Check kChecks[] = {
    {"row_sum", CheckRowSum},
    {"product", CheckProduct},
    {"missing_barrier", CheckMissingBarrier},
    {"missing_second_barrier", CheckMissingSecondBarrier},
    {"divergence", CheckDivergence},
    {"bounds", CheckBounds},
    {"alignment", CheckAlignment},
    {"builtins", CheckBuiltins},
    {"simd_functions", CheckSimdFunctions},
    {"bindings", CheckBindings},
    {"threadgroup_memory", CheckThreadgroupMemory},
    {"order", CheckOrder},
};

}  // namespace
}  // namespace pjrt_metal::software

int main(int count, char** words) {
  using namespace pjrt_metal::software;
  return pjrt_metal::RunCheck(count > 1 ? words[1] : "", {kChecks});
}
