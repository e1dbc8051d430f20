#include "csrc/software/strict_device.h"

#ifdef __linux__
#include <link.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "csrc/runtime/environment.h"
#include "csrc/software/host_cpu.h"
#include "csrc/software/kernel_cache.h"
#include "csrc/software/software_device.h"
#include "csrc/software/strict_machine.h"
#include "csrc/software/strict_unit.h"

namespace pjrt_metal::software {
namespace {

constexpr const char* kFamilies[] = {"apple7", "apple8", "apple9"};
constexpr uint32_t kMaxBuffers = 31;  // of a kernel, arguments included

const Dialect& StrictDialect() {
  static const Dialect dialect = {StrictPrologue(), StrictKernelText, StrictFlags()};
  return dialect;
}

struct StrictPipeline : Pipeline {
  StrictKernel kernel;
  std::vector<std::string> names;  // of its buffers
  std::vector<bool> writable;      // each of them
  bool takes_args = false;
};

// A kernel that needs what Metal lacks runs as on the software device.
struct HostPipeline : Pipeline {
  explicit HostPipeline(PipelineRef pipeline) : plain(std::move(pipeline)) {}
  PipelineRef plain;
};

// Whether FindImage can.
#ifdef __linux__
constexpr bool kSupported = true;
#else
constexpr bool kSupported = false;
#endif

// The addresses of the library that holds the kernel's function.
void FindImage([[maybe_unused]] StrictKernel& kernel) {
#ifdef __linux__
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* context) {
        auto& k = *static_cast<StrictKernel*>(context);
        uintptr_t begin = UINTPTR_MAX, end = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD) continue;
          begin = std::min<uintptr_t>(begin, info->dlpi_addr + header.p_vaddr);
          end = std::max<uintptr_t>(end, info->dlpi_addr + header.p_vaddr + header.p_memsz);
        }
        const auto function = reinterpret_cast<uintptr_t>(k.run);
        if (function < begin || function >= end) return 0;
        k.image_begin = begin;
        k.image_end = end;
        return 1;
      },
      &kernel);
#endif
}

std::string Hexadecimal(const std::byte* data, size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (size_t i = bytes; i-- > 0;) {
    text += kDigits[static_cast<unsigned>(data[i]) >> 4];
    text += kDigits[static_cast<unsigned>(data[i]) & 15];
  }
  return text;
}

class StrictEncoder : public Encoder {
 public:
  StrictEncoder(std::unique_ptr<Encoder> plain, std::mutex& mutex, Machine& machine, uint32_t orders)
      : plain_(std::move(plain)), mutex_(mutex), machine_(machine), orders_(orders) {}

  void Dispatch(const Pipeline& abstract_pipeline, std::span<const Binding> buffers, std::span<const std::byte> args,
                const Grid& grid) override {
    if (const auto* host = dynamic_cast<const HostPipeline*>(&abstract_pipeline)) {
      plain_->Dispatch(*host->plain, buffers, args, grid);
      return;
    }
    const auto& pipeline = static_cast<const StrictPipeline&>(abstract_pipeline);
    const std::string& name = pipeline.kernel.name;
    if (buffers.size() != pipeline.names.size() || args.empty() == pipeline.takes_args) {
      throw Internal(name + ": launched with " + std::to_string(buffers.size()) + " buffers and " +
                     std::to_string(args.size()) + " bytes of arguments; it takes " +
                     std::to_string(pipeline.names.size()) + " buffers and " + (pipeline.takes_args ? "some" : "no") +
                     " arguments");
    }
    const Geometry geometry(name, grid);
    std::vector<Piece> pieces;
    for (size_t i = 0; i < buffers.size(); ++i) pieces.push_back(MakePiece(pipeline, i, buffers[i]));
    if (pipeline.takes_args) {
      std::byte* copy = AlignedArgs(args);
      pieces.push_back({"the arguments", copy, args.size(), false});
    }
    const std::lock_guard lock(mutex_);
    Run(pipeline, geometry, pieces);
  }

  void Copy(Binding source, Binding destination, size_t bytes) override { plain_->Copy(source, destination, bytes); }
  void Host(std::function<void()> work) override { plain_->Host(std::move(work)); }
  void Sync() override { plain_->Sync(); }
  void Commit(std::function<void(std::optional<Error>)> done) override { plain_->Commit(std::move(done)); }

 private:
  // As wide as the alignment that Memory keeps: arguments of any type are aligned in copies.
  struct alignas(256) ArgsBlock {
    std::byte bytes[256];
  };

  static Piece MakePiece(const StrictPipeline& pipeline, size_t i, const Binding& binding) {
    const std::string name = "buffer " + (pipeline.names[i].empty() ? std::to_string(i) : pipeline.names[i]);
    if (binding.allocation == nullptr) throw Internal(pipeline.kernel.name + ": no allocation for " + name);
    const size_t size = binding.allocation->size();
    const size_t left = binding.offset > size ? 0 : size - binding.offset;
    const size_t bytes = binding.bytes == SIZE_MAX ? left : binding.bytes;
    if (binding.offset > size || bytes > left) {
      throw Internal(pipeline.kernel.name + ": " + name + " has " + std::to_string(bytes) + " bytes at offset " +
                     std::to_string(binding.offset) + " of an allocation of " + std::to_string(size));
    }
    return {name, binding.allocation->data() + binding.offset, bytes, pipeline.writable[i]};
  }

  std::byte* AlignedArgs(std::span<const std::byte> args) {
    args_.resize((args.size() + sizeof(ArgsBlock) - 1) / sizeof(ArgsBlock));
    std::memcpy(args_.data(), args.data(), args.size());
    return args_[0].bytes;
  }

  // In each order, each time from what the buffers hold now; the first one's results are kept.
  void Run(const StrictPipeline& pipeline, const Geometry& geometry, const std::vector<Piece>& pieces) {
    std::unique_ptr<Memory> first;
    for (uint32_t i = 0; i < orders_; ++i) {
      const auto order = static_cast<Order>(i);
      auto memory = std::make_unique<Memory>(geometry, pieces);
      std::vector<void*> addresses;
      for (size_t j = 0; j < pipeline.names.size(); ++j) addresses.push_back(memory->copy(j));
      const void* args = pipeline.takes_args ? memory->copy(pieces.size() - 1) : nullptr;
      machine_.Run(pipeline.kernel, geometry, *memory, addresses, args, order);
      if (first == nullptr) {
        first = std::move(memory);
      } else {
        Compare(pipeline.kernel, pieces, *first, *memory, order);
      }
    }
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].writable && pieces[i].bytes > 0) {
        std::memcpy(pieces[i].original, first->copy(i), pieces[i].bytes);
      }
    }
  }

  static void Compare(const StrictKernel& kernel, const std::vector<Piece>& pieces, const Memory& forward,
                      const Memory& other, Order order) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const std::byte *a = forward.copy(i), *b = other.copy(i);
      const size_t bytes = pieces[i].bytes;
      if (!pieces[i].writable || bytes == 0 || std::memcmp(a, b, bytes) == 0) continue;
      const size_t at = static_cast<size_t>(std::mismatch(a, a + bytes, b).first - a) / 4 * 4;
      const size_t length = std::min<size_t>(4, bytes - at);
      throw Internal(Describe(kernel) + ": its result depends on the order of threads: at byte " + std::to_string(at) +
                     " of " + pieces[i].name + " (" + std::to_string(bytes) + " bytes) it stores " +
                     Hexadecimal(a + at, length) + " when they run forward, " + Hexadecimal(b + at, length) + " " +
                     Name(order) + " [strict software Metal]");
    }
  }

  std::unique_ptr<Encoder> plain_;
  std::mutex& mutex_;
  Machine& machine_;
  const uint32_t orders_;
  std::vector<ArgsBlock> args_;
};

class StrictDevice : public Device {
 public:
  StrictDevice(const std::string& family, const HostCpu& host)
      : plain_(Create()),
        kernels_(host.features, host.cores, StrictDialect()),
        orders_(environment::StrictOrders().value_or(3)) {
    info_ = plain_->info();
    info_.kind = "strict software Metal (" + family + ")";
    info_.target = family + ":simd_width=32,threads=1024,threadgroup_bytes=" + std::to_string(kMaxThreadgroupBytes) +
                   ",language=31";
    info_.platform_version = "strict software Metal 1";
  }

  const DeviceInfo& info() const override { return info_; }
  bool runs_on_caller() const override { return true; }
  // What nobody wrote is no number, and shows.
  AllocationRef Allocate(size_t bytes) override {
    const AllocationRef memory = plain_->Allocate(bytes);
    std::memset(memory->data(), 0xff, bytes);
    return memory;
  }
  AllocationRef Wrap(void* data, size_t bytes) override { return plain_->Wrap(data, bytes); }
  std::unique_ptr<Encoder> NewEncoder() override {
    return std::make_unique<StrictEncoder>(plain_->NewEncoder(), mutex_, machine_, orders_);
  }

  std::vector<PipelineRef> Compile(const std::string& preamble, std::span<const KernelSource> kernels) override {
    std::vector<PipelineRef> pipelines(kernels.size());
    std::vector<KernelSource> strict, on_host;
    for (const KernelSource& kernel : kernels) (kernel.on_host ? on_host : strict).push_back(kernel);
    const std::vector<KernelFunction> functions = kernels_.Get(preamble, strict);
    const std::vector<PipelineRef> plain = plain_->Compile(preamble, on_host);
    size_t next_strict = 0, next_plain = 0;
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (kernels[i].on_host) {
        pipelines[i] = std::make_shared<HostPipeline>(plain[next_plain++]);
      } else {
        pipelines[i] = MakePipeline(kernels[i], functions[next_strict++]);
      }
    }
    return pipelines;
  }

 private:
  static PipelineRef MakePipeline(const KernelSource& source, KernelFunction function) {
    auto pipeline = std::make_shared<StrictPipeline>();
    pipeline->kernel = {source.name, FirstComment(source.source),
                        reinterpret_cast<StrictFunction>(reinterpret_cast<void*>(function)), 0, 0};
    FindImage(pipeline->kernel);
    pipeline->names = BufferNames(source);
    for (const ParamKind kind : source.params) {
      if (kind == ParamKind::kInput || kind == ParamKind::kOutput) {
        pipeline->writable.push_back(kind == ParamKind::kOutput);
      }
      pipeline->takes_args |= kind == ParamKind::kArgs;
    }
    const size_t count = pipeline->names.size() + (pipeline->takes_args ? 1 : 0);
    if (count > kMaxBuffers) {
      throw InvalidArgument(source.name + ": takes " + std::to_string(count) + " buffers, Metal binds at most " +
                            std::to_string(kMaxBuffers));
    }
    return pipeline;
  }

  const std::unique_ptr<Device> plain_;
  KernelCache kernels_;
  const uint32_t orders_;
  std::mutex mutex_;  // guards machine_
  Machine machine_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Device> CreateStrict(const std::string& family) {
  if (std::find(std::begin(kFamilies), std::end(kFamilies), family) == std::end(kFamilies)) {
    throw InvalidArgument("PJRT_METAL_STRICT=" + family + ": expected apple7, apple8 or apple9");
  }
  if (!kSupported) throw FailedPrecondition("PJRT_METAL_STRICT=" + family + ": strict mode runs on Linux");
  return std::make_unique<StrictDevice>(family, DescribeHost());
}

}  // namespace pjrt_metal::software
