#include "csrc/software/software_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "csrc/runtime/environment.h"
#include "csrc/runtime/launch.h"
#include "csrc/software/denormals.h"
#include "csrc/software/host_cpu.h"
#include "csrc/software/kernel_cache.h"
#include "csrc/software/thread_pool.h"

namespace pjrt_metal::software {
namespace {

constexpr size_t kAlignment = 256;  // of every allocation
constexpr size_t kPageAlignedFrom = 16 << 10;
constexpr size_t kHugePage = 2 << 20;  // allocations from this size ask for huge pages
constexpr size_t kWrapAlignment = 64;  // the widest vector register
constexpr size_t kArgsAlignment = 16;  // of float4 and its like
// Work that a launch shares with sleeping or spinning threads is done sooner alone if it takes less
// than this.
constexpr double kSharedFromNanoseconds = 5000;

class OwnedMemory : public Allocation {
 public:
  OwnedMemory(std::byte* data, size_t size) : Allocation(data, size) {}
  ~OwnedMemory() override { std::free(data_); }
};

class BorrowedMemory : public Allocation {
 public:
  BorrowedMemory(std::byte* data, size_t size) : Allocation(data, size) {}
};

struct SoftwarePipeline : Pipeline {
  std::string name;
  LoadedKernel kernel;
  size_t buffers = 0;
  bool takes_args = false;
  // What a thread of the last launch took; 0: never measured. A guess at what the next will take.
  mutable std::atomic<float> thread_nanoseconds = 0;
};

struct Launch {
  KernelFunction run;
  void* const* buffers;
  const void* args;
  const uint32_t* threads;
};

// Runs threads begin..end, numbered with x fastest.
void RunThreads(const Launch& launch, uint64_t begin, uint64_t end) {
  const FlushDenormals flush;
  const uint64_t width = launch.threads[0], height = launch.threads[1];
  uint64_t number = begin / width, x = begin % width;
  while (begin < end) {
    const uint64_t stop = std::min(width, x + (end - begin));
    const uint32_t row[] = {static_cast<uint32_t>(number % height), static_cast<uint32_t>(number / height)};
    launch.run(launch.buffers, launch.args, launch.threads, row, static_cast<uint32_t>(x), static_cast<uint32_t>(stop));
    begin += stop - x;
    x = 0;
    ++number;
  }
}

double NanosecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

// The address of `bytes` bytes at the binding.
std::byte* Resolve(const Binding& binding, size_t bytes, const char* user) {
  if (binding.allocation == nullptr) throw Internal(std::string(user) + ": no allocation");
  const size_t size = binding.allocation->size();
  if (binding.offset > size || bytes > size - binding.offset) {
    throw Internal(std::string(user) + ": " + std::to_string(bytes) + " bytes at offset " +
                   std::to_string(binding.offset) + " of an allocation of " + std::to_string(size));
  }
  return binding.allocation->data() + binding.offset;
}

uint64_t CountThreads(const SoftwarePipeline& pipeline, const Grid& grid) {
  for (const uint32_t size : grid.per_threadgroup) {
    if (size > 1) {
      throw Unimplemented(pipeline.name +
                          ": wants threadgroups; the software device runs kernels whose threads share nothing (one "
                          "thread a threadgroup)");
    }
  }
  uint64_t count = 1;
  for (const uint32_t size : grid.threads) {
    if (__builtin_mul_overflow(count, size, &count)) {
      throw InvalidArgument(pipeline.name + ": its grid has 2^64 threads or more");
    }
  }
  return count;
}

// Executes every command as it comes, on the calling thread and the pool.
class SoftwareEncoder : public Encoder {
 public:
  explicit SoftwareEncoder(ThreadPool& pool) : pool_(pool) {}

  void Dispatch(const Pipeline& abstract_pipeline, std::span<const Binding> buffers, std::span<const std::byte> args,
                const Grid& grid) override {
    const auto& pipeline = static_cast<const SoftwarePipeline&>(abstract_pipeline);
    CheckLaunch(pipeline.name, pipeline.buffers, pipeline.takes_args, buffers.size(), args.size(), grid);
    const uint64_t count = CountThreads(pipeline, grid);
    addresses_.resize(buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i) addresses_[i] = Resolve(buffers[i], 0, pipeline.name.c_str());
    const std::byte* args_data = args.data();
    if (reinterpret_cast<uintptr_t>(args_data) % kArgsAlignment != 0) {
      args_.resize((args.size() + kArgsAlignment - 1) / kArgsAlignment);
      std::memcpy(args_.data(), args.data(), args.size());
      args_data = reinterpret_cast<const std::byte*>(args_.data());
    }
    Run(pipeline, {pipeline.kernel.run, addresses_.data(), args_data, grid.threads}, count);
  }

  void Copy(Binding source, Binding destination, size_t bytes) override {
    const std::byte* from = Resolve(source, bytes, "copy's source");
    std::byte* to = Resolve(destination, bytes, "copy's destination");
    if (bytes > 0) std::memmove(to, from, bytes);
  }

  void Host(std::function<void()> work) override { work(); }
  void Sync() override {}
  void Commit(std::function<void(std::optional<Error>)> done) override {
    if (done) done(std::nullopt);
  }

 private:
  struct alignas(kArgsAlignment) ArgsBlock {
    std::byte bytes[kArgsAlignment];
  };

  void Run(const SoftwarePipeline& pipeline, const Launch& launch, uint64_t count) {
    if (count == 1 || pool_.threads() == 1) {
      RunThreads(launch, 0, count);
      return;
    }
    const double expected = static_cast<double>(count) * pipeline.thread_nanoseconds.load(std::memory_order_relaxed);
    const auto start = std::chrono::steady_clock::now();
    double share = 1;
    if (expected > 0 && expected < kSharedFromNanoseconds) {
      RunThreads(launch, 0, count);
    } else {
      pool_.Run([](const void* context, uint64_t begin,
                   uint64_t end) { RunThreads(*static_cast<const Launch*>(context), begin, end); },
                &launch, count);
      share = pool_.threads();
    }
    const double thread = NanosecondsSince(start) * share / static_cast<double>(count);
    pipeline.thread_nanoseconds.store(static_cast<float>(thread), std::memory_order_relaxed);
  }

  ThreadPool& pool_;
  std::vector<void*> addresses_;  // of one launch; kept for their capacity
  std::vector<ArgsBlock> args_;
};

class SoftwareDevice : public Device {
 public:
  explicit SoftwareDevice(const HostCpu& host)
      : pool_(environment::Threads().value_or(host.cores)), kernels_(host.features, pool_.threads(), FastDialect()) {
    info_.kind = "software Metal (" + host.name + ")";
    info_.target =
        "software:threads=" + std::to_string(pool_.threads()) + ",vector_bytes=" + std::to_string(host.vector_bytes);
    info_.platform_version = "software Metal 1, compiled C++ kernels";
    info_.memory_bytes = host.memory_bytes;
    info_.max_buffer_bytes = host.memory_bytes;
  }

  const DeviceInfo& info() const override { return info_; }
  bool runs_on_caller() const override { return true; }
  std::unique_ptr<Encoder> NewEncoder() override { return std::make_unique<SoftwareEncoder>(pool_); }

  AllocationRef Allocate(size_t bytes) override {
    size_t alignment = kAlignment;
    if (bytes >= kPageAlignedFrom) alignment = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    if (bytes >= kHugePage) alignment = kHugePage;
    void* data = nullptr;
    if (bytes > info_.max_buffer_bytes || posix_memalign(&data, alignment, std::max<size_t>(bytes, 1)) != 0) {
      throw ResourceExhausted(info_.kind + ": no memory for a buffer of " + std::to_string(bytes) +
                              " bytes (the machine has " + std::to_string(info_.memory_bytes) + ")");
    }
#ifdef __linux__
    // A hint: 2 MiB pages take fewer faults and TLB entries.
    if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
#endif
    return std::make_shared<OwnedMemory>(static_cast<std::byte*>(data), bytes);
  }

  AllocationRef Wrap(void* data, size_t bytes) override {
    if (reinterpret_cast<uintptr_t>(data) % kWrapAlignment != 0) return nullptr;
    return std::make_shared<BorrowedMemory>(static_cast<std::byte*>(data), bytes);
  }

  std::vector<PipelineRef> Compile(const std::string& preamble, std::span<const KernelSource> kernels) override {
    std::vector<LoadedKernel> functions = kernels_.Get(preamble, kernels);
    std::vector<PipelineRef> pipelines;
    for (size_t i = 0; i < kernels.size(); ++i) {
      auto pipeline = std::make_shared<SoftwarePipeline>();
      pipeline->name = kernels[i].name;
      pipeline->kernel = std::move(functions[i]);
      for (const ParamKind kind : kernels[i].params) {
        pipeline->buffers += kind == ParamKind::kInput || kind == ParamKind::kOutput;
        pipeline->takes_args |= kind == ParamKind::kArgs;
      }
      pipelines.push_back(std::move(pipeline));
    }
    return pipelines;
  }

 private:
  ThreadPool pool_;
  KernelCache kernels_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Device> Create() { return std::make_unique<SoftwareDevice>(DescribeHost()); }

}  // namespace pjrt_metal::software
