// Drives the software device; run by test_device.py, one check a process.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "csrc/runtime/hash.h"
#include "csrc/software/software_device.h"
#include "tests/checks.h"

namespace pjrt_metal::software {
namespace {

constexpr char kPreamble[] = "using namespace metal;\n";

KernelSource Add() {
  return {
      "k_add",
      "kernel void k_add(device const float* __restrict a [[buffer(0)]],\n"
      "    device const float* __restrict b [[buffer(1)]],\n"
      "    device float* __restrict c [[buffer(2)]], constant float& scale [[buffer(3)]],\n"
      "    uint3 tid [[thread_position_in_grid]]) {\n"
      "  c[tid.x] = scale * (a[tid.x] + b[tid.x]);\n}\n",
      {ParamKind::kInput, ParamKind::kInput, ParamKind::kOutput, ParamKind::kArgs, ParamKind::kThreadPositionInGrid}};
}

// Writes `number` once: kernels that differ in name and content.
KernelSource Store(int number) {
  const std::string name = "k_store" + std::to_string(number);
  return {name,
          "kernel void " + name + "(device int* out [[buffer(0)]]) { *out = " + std::to_string(number) + "; }\n",
          {ParamKind::kOutput}};
}

PipelineRef Compile(Device& device, const KernelSource& kernel) { return device.Compile(kPreamble, {&kernel, 1})[0]; }

Grid Threads(uint32_t x, uint32_t y = 1, uint32_t z = 1) { return {{x, y, z}, {0, 0, 0}}; }

template <class T>
T* Data(const AllocationRef& allocation) {
  return reinterpret_cast<T*>(allocation->data());
}

template <class T>
std::span<const std::byte> Bytes(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

// One that runs `kernel` on buffers at their starts.
void Launch(Device& device, const Pipeline& kernel, std::vector<AllocationRef> buffers, std::span<const std::byte> args,
            const Grid& grid) {
  std::vector<Binding> bindings;
  for (const AllocationRef& buffer : buffers) bindings.push_back({buffer.get(), 0});
  const auto encoder = device.NewEncoder();
  encoder->Dispatch(kernel, bindings, args, grid);
  int calls = 0;
  encoder->Commit([&](std::optional<Error> error) {
    EXPECT(!error);
    ++calls;
  });
  EXPECT(calls == 1);
}

template <class Function>
void ExpectError(Code code, std::initializer_list<const char*> texts, Function function) {
  try {
    function();
  } catch (const Error& error) {
    for (const char* text : texts) {
      if (std::strstr(error.what(), text) == nullptr) {
        throw std::logic_error("no '" + std::string(text) + "' in: " + error.what());
      }
    }
    if (error.code() != code) throw std::logic_error("wrong code of: " + std::string(error.what()));
    return;
  }
  throw std::logic_error("nothing was thrown");
}

// Adds `count` numbers on `device` and compares.
void RunAdd(Device& device, const Pipeline& add, uint32_t count) {
  const AllocationRef a = device.Allocate(count * 4), b = device.Allocate(count * 4), c = device.Allocate(count * 4);
  std::iota(Data<float>(a), Data<float>(a) + count, 0.0f);
  std::iota(Data<float>(b), Data<float>(b) + count, 1.0f);
  std::memset(c->data(), 0xff, c->size());
  Launch(device, add, {a, b, c}, Bytes(3.0f), Threads(count));
  for (uint32_t i = 0; i < count; ++i) {
    EXPECT(Data<float>(c)[i] == 3.0f * (static_cast<float>(i) + (static_cast<float>(i) + 1.0f)));
  }
}

void CheckAdd() {
  const auto device = Create();
  const PipelineRef add = Compile(*device, Add());
  for (const uint32_t count : {1u, 2u, 17u, 100003u}) RunAdd(*device, *add, count);
}

void CheckEveryParameter() {
  const KernelSource kernel = {
      "k_all",
      "struct Scale { float factor; int offset; };\n"
      "kernel void k_all(uint3 tid [[thread_position_in_grid]],\n"
      "    device const float* in [[buffer(0)]], constant Scale& scale [[buffer(1)]],\n"
      "    uint3 group [[threadgroup_position_in_grid]],\n"
      "    uint3 in_group [[thread_position_in_threadgroup]],\n"
      "    uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]],\n"
      "    uint3 group_size [[threads_per_threadgroup]], uint3 groups [[threadgroups_per_grid]],\n"
      "    device float* out [[buffer(2)]], device uint* seen [[buffer(3)]]) {\n"
      "  const uint i = tid.x + 5 * (tid.y + 3 * tid.z);\n"
      "  out[i] = in[i] * scale.factor + float(scale.offset);\n"
      "  const uint values[] = {tid.x, tid.y, tid.z, group.x, group.y, group.z, in_group.x,\n"
      "    in_group.y, in_group.z, lane, simd, group_size.x, group_size.y, group_size.z,\n"
      "    groups.x, groups.y, groups.z};\n"
      "  for (uint v = 0; v < 17; ++v) seen[17 * i + v] = values[v];\n}\n",
      {ParamKind::kThreadPositionInGrid, ParamKind::kInput, ParamKind::kArgs, ParamKind::kThreadgroupPositionInGrid,
       ParamKind::kThreadPositionInThreadgroup, ParamKind::kThreadIndexInSimdgroup,
       ParamKind::kSimdgroupIndexInThreadgroup, ParamKind::kThreadsPerThreadgroup, ParamKind::kThreadgroupsPerGrid,
       ParamKind::kOutput, ParamKind::kOutput}};
  const auto device = Create();
  const PipelineRef pipeline = Compile(*device, kernel);
  constexpr uint32_t kCount = 5 * 3 * 4;
  const AllocationRef in = device->Allocate(kCount * 4), out = device->Allocate(kCount * 4),
                      seen = device->Allocate(kCount * 17 * 4);
  std::iota(Data<float>(in), Data<float>(in) + kCount, 0.0f);
  const struct {
    float factor;
    int offset;
  } scale = {0.5f, -7};
  Grid grid = Threads(5, 3, 4);
  for (const uint32_t size : {0u, 1u}) {
    std::fill_n(grid.per_threadgroup, 3, size);
    std::memset(out->data(), 0, out->size());
    std::memset(seen->data(), 0xff, seen->size());
    Launch(*device, *pipeline, {in, out, seen}, Bytes(scale), grid);
    for (uint32_t i = 0; i < kCount; ++i) {
      EXPECT(Data<float>(out)[i] == static_cast<float>(i) * 0.5f - 7.0f);
      const uint32_t x = i % 5, y = i / 5 % 3, z = i / 15;
      const uint32_t expected[17] = {x, y, z, x, y, z, 0, 0, 0, 0, 0, 1, 1, 1, 5, 3, 4};
      EXPECT(std::memcmp(Data<uint32_t>(seen) + 17 * i, expected, sizeof expected) == 0);
    }
  }
}

void CheckArgumentsByPointer() {
  const KernelSource kernel = {
      "k_table",
      "kernel void k_table(constant float4* table [[buffer(0)]], device float* out [[buffer(1)]],\n"
      "    uint3 tid [[thread_position_in_grid]]) { out[tid.x] = table[tid.x].w; }\n",
      {ParamKind::kArgs, ParamKind::kOutput, ParamKind::kThreadPositionInGrid}};
  const auto device = Create();
  const PipelineRef pipeline = Compile(*device, kernel);
  constexpr size_t kCount = 700;  // 11 KB
  std::vector<std::byte> storage(kCount * 16 + 1);
  const std::span<std::byte> args(storage.data() + 1, kCount * 16);  // unaligned
  for (size_t i = 0; i < kCount; ++i) {
    const float value = static_cast<float>(i);
    std::memcpy(args.data() + 16 * i + 12, &value, 4);
  }
  const AllocationRef out = device->Allocate(kCount * 4);
  Launch(*device, *pipeline, {out}, args, Threads(kCount));
  for (size_t i = 0; i < kCount; ++i) EXPECT(Data<float>(out)[i] == static_cast<float>(i));
}

void CheckEveryThreadRunsOnce() {
  const KernelSource kernel = {"k_count",
                               "kernel void k_count(device int* counts [[buffer(0)]],\n"
                               "    uint3 tid [[thread_position_in_grid]], uint3 grid [[threadgroups_per_grid]]) {\n"
                               "  counts[tid.x + grid.x * (tid.y + grid.y * tid.z)] += 1;\n}\n",
                               {ParamKind::kOutput, ParamKind::kThreadPositionInGrid, ParamKind::kThreadgroupsPerGrid}};
  const auto device = Create();
  const PipelineRef pipeline = Compile(*device, kernel);
  for (const Grid& grid : {Threads(1), Threads(2), Threads(15), Threads(1, 31), Threads(3, 1, 7), Threads(129, 3, 2),
                           Threads(1, 1, 100000), Threads(7, 11, 13)}) {
    const size_t count = size_t{grid.threads[0]} * grid.threads[1] * grid.threads[2];
    const AllocationRef counts = device->Allocate(count * 4);
    std::memset(counts->data(), 0, count * 4);
    for (int launch = 1; launch <= 3; ++launch) {
      Launch(*device, *pipeline, {counts}, {}, grid);
      EXPECT(std::count(Data<int>(counts), Data<int>(counts) + count, launch) == static_cast<ptrdiff_t>(count));
    }
  }
}

void CheckManyKernels() {
  const auto device = Create();
  std::vector<KernelSource> kernels;
  for (int i = 0; i < 40; ++i) kernels.push_back(Store(i));
  kernels.push_back(Store(7));  // again
  for (int round = 0; round < 2; ++round) {
    const std::vector<PipelineRef> pipelines = device->Compile(kPreamble, kernels);
    EXPECT(pipelines.size() == 41);
    const AllocationRef out = device->Allocate(4);
    for (int i = 0; i < 41; ++i) {
      Launch(*device, *pipelines[static_cast<size_t>(i)], {out}, {}, Threads(1));
      EXPECT(*Data<int>(out) == (i < 40 ? i : 7));
    }
  }
}

// The libraries that the loader has mapped.
size_t CountMappedLibraries() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(".so") != std::string::npos;
  return count;
}

// A library goes with the last holder of its kernels, and comes back when they are wanted again.
void CheckUnloading() {
  const auto device = Create();
  std::vector<KernelSource> kernels;
  for (int i = 0; i < 40; ++i) kernels.push_back(Store(i));
  const AllocationRef out = device->Allocate(4);
  const size_t before = CountMappedLibraries();
  for (int round = 0; round < 3; ++round) {
    std::vector<PipelineRef> pipelines = device->Compile(kPreamble, kernels);
    EXPECT(CountMappedLibraries() > before);
    const PipelineRef kept = pipelines[static_cast<size_t>(5 + round)];
    pipelines.clear();
    Launch(*device, *kept, {out}, {}, Threads(1));
    EXPECT(*Data<int>(out) == 5 + round);
  }
  EXPECT(CountMappedLibraries() == before);
}

void CheckSameNameOtherContent() {
  const auto device = Create();
  KernelSource one = Store(1), two = one;
  two.source.replace(two.source.find("= 1"), 3, "= 2");
  const PipelineRef first = Compile(*device, one), second = Compile(*device, two);
  const PipelineRef third = device->Compile("#define out out\n", {&one, 1})[0];
  const AllocationRef out = device->Allocate(4);
  for (const auto& [pipeline, expected] : {std::pair(first, 1), std::pair(second, 2), std::pair(third, 1)}) {
    Launch(*device, *pipeline, {out}, {}, Threads(1));
    EXPECT(*Data<int>(out) == expected);
  }
}

// On one device: clients that launch at once, and compile at once.
void CheckManyClients() {
  const auto device = Create();
  const PipelineRef add = Compile(*device, Add());
  std::atomic<int> good = 0;
  {
    std::vector<std::jthread> clients;
    for (int client = 0; client < 8; ++client) {
      clients.emplace_back([&, client] {
        const PipelineRef store = Compile(*device, Store(client % 4));
        const AllocationRef out = device->Allocate(4);
        for (uint32_t i = 0; i < 100; ++i) {
          RunAdd(*device, *add, 1 + i * 97);
          Launch(*device, *store, {out}, {}, Threads(1));
          EXPECT(*Data<int>(out) == client % 4);
        }
        ++good;
      });
    }
  }
  EXPECT(good == 8);
}

void CheckForkedChild() {
  const auto device = Create();
  const PipelineRef add = Compile(*device, Add());
  RunAdd(*device, *add, 100003);
  const pid_t child = fork();
  if (child == 0) {
    RunAdd(*device, *add, 100003);
    _exit(0);
  }
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  RunAdd(*device, *add, 100003);
}

void CheckCopies() {
  const auto device = Create();
  const AllocationRef memory = device->Allocate(10), empty = device->Allocate(0), nothing = device->Wrap(nullptr, 0);
  std::memcpy(memory->data(), "0123456789", 10);
  const auto encoder = device->NewEncoder();
  encoder->Copy({empty.get(), 0}, {empty.get(), 0}, 0);
  encoder->Copy({memory.get(), 10}, {nothing.get(), 0}, 0);
  encoder->Copy({nothing.get(), 0}, {memory.get(), 10}, 0);
  EXPECT(std::memcmp(memory->data(), "0123456789", 10) == 0);
  encoder->Copy({memory.get(), 0}, {memory.get(), 7}, 3);
  encoder->Sync();
  EXPECT(std::memcmp(memory->data(), "0123456012", 10) == 0);
  ExpectError(Code::kInternal, {"copy's source", "4 bytes at offset 7 of an allocation of 10"},
              [&] { encoder->Copy({memory.get(), 7}, {memory.get(), 0}, 4); });
  ExpectError(Code::kInternal, {"copy's destination"}, [&] { encoder->Copy({memory.get(), 0}, {memory.get(), 7}, 4); });
}

void CheckMemory() {
  const auto device = Create();
  const auto aligned = [](const AllocationRef& a, size_t to) {
    return reinterpret_cast<uintptr_t>(a->data()) % to == 0;
  };
  for (const size_t bytes : {0, 1, 255, 4000}) {
    const AllocationRef memory = device->Allocate(bytes);
    EXPECT(memory->size() == bytes && memory->data() != nullptr && aligned(memory, 256));
  }
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t bytes : {size_t{16} << 10, size_t{3} << 20}) {
    const AllocationRef memory = device->Allocate(bytes);
    EXPECT(aligned(memory, page));
    std::memset(memory->data(), 1, bytes);
  }
  const uint64_t too_much = device->info().max_buffer_bytes + 1;
  ExpectError(Code::kResourceExhausted, {std::to_string(too_much).c_str()}, [&] { device->Allocate(too_much); });
  alignas(64) static std::byte host[256];
  const AllocationRef wrapped = device->Wrap(host, sizeof host);
  EXPECT(wrapped->data() == host && wrapped->size() == sizeof host);
  EXPECT(device->Wrap(host + 64, 64) != nullptr);
  EXPECT(device->Wrap(host + 32, 64) == nullptr);
}

void CheckRefusals() {
  const auto device = Create();
  const PipelineRef add = Compile(*device, Add());
  const AllocationRef memory = device->Allocate(16);
  const float scale = 1;
  const auto dispatch = [&](size_t buffers, std::span<const std::byte> args, size_t offset, const Grid& grid) {
    const std::vector<Binding> bindings(buffers, {memory.get(), offset});
    device->NewEncoder()->Dispatch(*add, bindings, args, grid);
  };
  dispatch(3, Bytes(scale), 0, Threads(4));
  ExpectError(Code::kInternal, {"k_add", "2 buffers", "takes 3 buffers"},
              [&] { dispatch(2, Bytes(scale), 0, Threads(4)); });
  ExpectError(Code::kInternal, {"k_add", "0 bytes of arguments"}, [&] { dispatch(3, {}, 0, Threads(4)); });
  ExpectError(Code::kInternal, {"k_add", "offset 17"}, [&] { dispatch(3, Bytes(scale), 17, Threads(4)); });
  ExpectError(Code::kInternal, {"k_add", "empty grid"}, [&] { dispatch(3, Bytes(scale), 0, Threads(4, 0)); });
  ExpectError(Code::kInvalidArgument, {"k_add", "2^64"},
              [&] { dispatch(3, Bytes(scale), 0, Threads(1u << 31, 1u << 31, 4)); });
  ExpectError(Code::kUnimplemented, {"k_add", "threadgroups"},
              [&] { dispatch(3, Bytes(scale), 0, {{64, 1, 1}, {32, 1, 1}}); });
  KernelSource kernel = Store(1);
  kernel.name = "k; int x";
  ExpectError(Code::kInvalidArgument, {"k; int x"}, [&] { Compile(*device, kernel); });
  kernel = Store(1);
  kernel.params[0] = static_cast<ParamKind>(99);
  ExpectError(Code::kInvalidArgument, {"kind 99"}, [&] { Compile(*device, kernel); });
}

void CheckSourceWithError() {
  KernelSource kernel = Store(1);
  kernel.source.replace(kernel.source.find("= 1"), 3, "= undeclared_name");
  const auto device = Create();
  std::string message;
  try {
    Compile(*device, kernel);
  } catch (const Error& error) {
    EXPECT(error.code() == Code::kInternal);
    message = error.what();
  }
  EXPECT(message.find("undeclared_name") != std::string::npos);
  EXPECT(message.find("repeat with: /") != std::string::npos);
  std::puts(message.c_str());  // test_device.py repeats the command
  // The device goes on.
  RunAdd(*device, *Compile(*device, Add()), 100);
}

// What compiling says, for the environments that test_device.py makes.
void CheckNoCompiler() {
  const auto device = Create();
  ExpectError(Code::kFailedPrecondition, {"C++ compiler", "PJRT_METAL_CXX", "pip install pjrt-metal[software]"},
              [&] { Compile(*device, Add()); });
}

void CheckWrongCompiler() {
  const auto device = Create();
  ExpectError(Code::kFailedPrecondition, {"PJRT_METAL_CXX", std::getenv("PJRT_METAL_CXX")},
              [&] { Compile(*device, Add()); });
}

void CheckWrongBound() {
  ExpectError(Code::kInvalidArgument, {"PJRT_METAL_CACHE_MB", "a number from 1"}, [] { Create(); });
}

void CheckUselessCompiler() {
  const auto device = Create();
  ExpectError(Code::kInternal, {std::getenv("PJRT_METAL_CXX"), "exit status"}, [&] { Compile(*device, Add()); });
}

void CheckNoTemporaryFolder() {
  // Every file of this process is full from the start.
  signal(SIGXFSZ, SIG_IGN);
  const rlimit nothing = {0, 0};
  EXPECT(setrlimit(RLIMIT_FSIZE, &nothing) == 0);
  const auto device = Create();
  ExpectError(Code::kResourceExhausted, {"TMPDIR", "/dev/shm"}, [&] { Compile(*device, Add()); });
}

void CheckIgnoredChildren() {
  signal(SIGCHLD, SIG_IGN);
  const auto device = Create();
  RunAdd(*device, *Compile(*device, Add()), 100);
  ExpectError(Code::kInternal, {"error"}, [&] {
    KernelSource kernel = Store(1);
    kernel.source += "}";
    Compile(*device, kernel);
  });
}

void CheckEmptyCompile() { EXPECT(Create()->Compile(kPreamble, {}).empty()); }

// Facts that test_device.py compares.
void PrintInfo() {
  const auto device = Create();
  const DeviceInfo& info = device->info();
  EXPECT(device->runs_on_caller());
  std::printf("%s\n%s\n%llu\n", info.kind.c_str(), info.target.c_str(),
              static_cast<unsigned long long>(info.memory_bytes));
}

void PrintHashes() {
  std::string text;
  for (int size = 0; size <= 400; ++size) {
    // In two pieces, so that blocks fill at different places.
    Hasher hasher;
    hasher.Add(std::string_view(text).substr(0, text.size() / 3));
    std::puts(Hex(hasher.Add(std::string_view(text).substr(text.size() / 3)).Finish()).c_str());
    text += static_cast<char>('a' + size % 26);
  }
}

constexpr Check kChecks[] = {
    {"add", CheckAdd},
    {"every_parameter", CheckEveryParameter},
    {"arguments_by_pointer", CheckArgumentsByPointer},
    {"every_thread_runs_once", CheckEveryThreadRunsOnce},
    {"many_kernels", CheckManyKernels},
    {"unloading", CheckUnloading},
    {"same_name_other_content", CheckSameNameOtherContent},
    {"many_clients", CheckManyClients},
    {"forked_child", CheckForkedChild},
    {"copies", CheckCopies},
    {"memory", CheckMemory},
    {"refusals", CheckRefusals},
    {"empty_compile", CheckEmptyCompile},
    {"ignored_children", CheckIgnoredChildren},
};
// Each needs an environment of its own.
constexpr Check kSpecial[] = {
    {"source_with_error", CheckSourceWithError},
    {"no_compiler", CheckNoCompiler},
    {"wrong_compiler", CheckWrongCompiler},
    {"wrong_bound", CheckWrongBound},
    {"useless_compiler", CheckUselessCompiler},
    {"no_temporary_folder", CheckNoTemporaryFolder},
    {"print_info", PrintInfo},
    {"print_hashes", PrintHashes},
};

}  // namespace
}  // namespace pjrt_metal::software

int main(int count, char** words) {
  using namespace pjrt_metal::software;
  return pjrt_metal::RunCheck(count > 1 ? words[1] : "", {kChecks, kSpecial});
}
