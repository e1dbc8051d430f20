#include "csrc/software/strict_device.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "csrc/runtime/environment.h"
#include "csrc/runtime/launch.h"
#include "csrc/software/host_cpu.h"
#include "csrc/software/kernel_cache.h"
#include "csrc/software/software_device.h"
#include "csrc/software/strict_contents.h"
#include "csrc/software/strict_run.h"
#include "csrc/software/strict_unit.h"

namespace pjrt_metal::software {
namespace {

constexpr const char* kFamilies[] = {"apple7", "apple8", "apple9"};
// Instead of a family: the software device's own schedules.
constexpr const char* kSoftware = "software";

struct StrictPipeline : Pipeline {
  StrictKernel kernel;
  std::vector<std::string> names;  // of its buffers
  std::vector<bool> writable;      // each of them
  bool takes_args = false;
};

// A kernel that needs what Metal lacks runs as on the software device.
struct HostPipeline : Pipeline {
  PipelineRef plain;
  std::vector<size_t> outputs;  // which of its buffers
};

class StrictEncoder : public Encoder {
 public:
  // `one_by_one`: each thread is a threadgroup, as the software device has them.
  StrictEncoder(std::unique_ptr<Encoder> plain, StrictRunner& runner, bool one_by_one)
      : plain_(std::move(plain)), runner_(runner), one_by_one_(one_by_one) {}

  void Dispatch(const Pipeline& abstract_pipeline, std::span<const Binding> buffers, std::span<const std::byte> args,
                const Grid& grid) override {
    if (const auto* host = dynamic_cast<const HostPipeline*>(&abstract_pipeline)) {
      plain_->Dispatch(*host->plain, buffers, args, grid);
      for (const size_t i : host->outputs) contents_.Set(buffers[i], true);
      return;
    }
    const auto& pipeline = static_cast<const StrictPipeline&>(abstract_pipeline);
    const std::string& name = pipeline.kernel.name;
    CheckLaunch(name, pipeline.names.size(), pipeline.takes_args, buffers.size(), args.size(), grid);
    Grid wanted = grid;
    if (one_by_one_) std::fill_n(wanted.per_threadgroup, 3, 1);
    const Geometry geometry(name, wanted);
    std::vector<Piece> pieces;
    for (size_t i = 0; i < buffers.size(); ++i) pieces.push_back(MakePiece(pipeline, i, buffers[i]));
    if (pipeline.takes_args) {
      std::byte* copy = AlignedArgs(args);
      pieces.push_back({"the arguments", copy, args.size(), false});
    }
    std::vector<Touched> touched;
    try {
      runner_.Run(pipeline.kernel, geometry, pieces, pipeline.takes_args, &touched);
    } catch (const Error& error) {
      if (grid.label == nullptr) throw;
      throw Error(error.code(), error.what() + ("; launched for " + grid.label->Text() + ": " + grid.label->detail));
    }
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (pipeline.writable[i]) SetWritten(buffers[i], pieces[i], touched);
    }
  }

  void Copy(Binding source, Binding destination, size_t bytes) override {
    plain_->Copy(source, destination, bytes);
    contents_.Copy(source, destination, bytes);
  }
  bool checks_contents() const override { return true; }
  void SetContents(const Binding& binding, bool written) override { contents_.Set(binding, written); }
  void CheckContents(const Binding& binding, const std::string& what) override {
    const std::vector<uint8_t> missing = contents_.Missing(binding);
    const auto first = std::find(missing.begin(), missing.end(), 1);
    if (first == missing.end()) return;
    throw Internal(what + ": nobody has written its byte " + std::to_string(first - missing.begin()) + " of " +
                   std::to_string(missing.size()) + " [strict software Metal]");
  }
  void Host(std::function<void()> work) override { plain_->Host(std::move(work)); }
  void Sync() override { plain_->Sync(); }
  void Commit(std::function<void(std::optional<Error>)> done) override { plain_->Commit(std::move(done)); }

 private:
  // As wide as the alignment that Memory keeps: arguments of any type are aligned in copies.
  struct alignas(256) ArgsBlock {
    std::byte bytes[256];
  };

  void SetWritten(const Binding& binding, const Piece& piece, const std::vector<Touched>& touched) {
    for (const Touched& run : touched) {
      const std::byte* begin = std::max<const std::byte*>(run.begin, piece.original);
      const std::byte* end = std::min<const std::byte*>(run.end, piece.original + piece.bytes);
      if (run.written && begin < end) contents_.Wrote(binding, begin, end);
    }
  }

  Piece MakePiece(const StrictPipeline& pipeline, size_t i, const Binding& binding) const {
    const std::string name = "buffer " + (pipeline.names[i].empty() ? std::to_string(i) : pipeline.names[i]);
    if (binding.allocation == nullptr) throw Internal(pipeline.kernel.name + ": no allocation for " + name);
    const size_t size = binding.allocation->size();
    const size_t left = binding.offset > size ? 0 : size - binding.offset;
    const size_t bytes = binding.bytes == SIZE_MAX ? left : binding.bytes;
    if (binding.offset > size || bytes > left) {
      throw Internal(pipeline.kernel.name + ": " + name + " has " + std::to_string(bytes) + " bytes at offset " +
                     std::to_string(binding.offset) + " of an allocation of " + std::to_string(size));
    }
    return {name, binding.allocation->data() + binding.offset, bytes, pipeline.writable[i], contents_.Missing(binding)};
  }

  std::byte* AlignedArgs(std::span<const std::byte> args) {
    args_.resize((args.size() + sizeof(ArgsBlock) - 1) / sizeof(ArgsBlock));
    std::memcpy(args_.data(), args.data(), args.size());
    return args_[0].bytes;
  }

  std::unique_ptr<Encoder> plain_;
  StrictRunner& runner_;
  const bool one_by_one_;
  Contents contents_;
  std::vector<ArgsBlock> args_;
};

class StrictDevice : public Device {
 public:
  StrictDevice(const std::string& family, const HostCpu& host)
      : plain_(Create()),
        is_software_(family == kSoftware),
        kernels_(host.features, host.cores, is_software_ ? CheckedDialect() : StrictDialect()),
        runner_(environment::StrictOrders().value_or(kOrders)) {
    info_ = plain_->info();
    info_.kind = "strict software Metal (" + family + ")";
    info_.platform_version = "strict software Metal 1";
    if (is_software_) return;  // its target
    info_.target = family + ":simd_width=32,threads=1024,threadgroup_bytes=" + std::to_string(kMaxThreadgroupBytes) +
                   ",language=31";
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
    return std::make_unique<StrictEncoder>(plain_->NewEncoder(), runner_, is_software_);
  }

  std::vector<PipelineRef> Compile(const std::string& preamble, std::span<const KernelSource> kernels) override {
    std::vector<PipelineRef> pipelines(kernels.size());
    std::vector<KernelSource> strict, on_host;
    const auto runs_plain = [&](const KernelSource& kernel) { return kernel.on_host && !is_software_; };
    for (const KernelSource& kernel : kernels) (runs_plain(kernel) ? on_host : strict).push_back(kernel);
    std::vector<LoadedKernel> functions = kernels_.Get(preamble, strict);
    const std::vector<PipelineRef> plain = plain_->Compile(preamble, on_host);
    size_t next_strict = 0, next_plain = 0;
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (runs_plain(kernels[i])) {
        auto pipeline = std::make_shared<HostPipeline>();
        pipeline->plain = plain[next_plain++];
        pipeline->outputs = Outputs(kernels[i]);
        pipelines[i] = std::move(pipeline);
      } else {
        pipelines[i] = MakePipeline(kernels[i], std::move(functions[next_strict++]));
      }
    }
    return pipelines;
  }

 private:
  static PipelineRef MakePipeline(const KernelSource& source, LoadedKernel loaded) {
    auto pipeline = std::make_shared<StrictPipeline>();
    pipeline->kernel = MakeStrictKernel(source, std::move(loaded));
    pipeline->names = BufferNames(source);
    for (const ParamKind kind : source.params) {
      if (kind == ParamKind::kInput || kind == ParamKind::kOutput) {
        pipeline->writable.push_back(kind == ParamKind::kOutput);
      }
      pipeline->takes_args |= kind == ParamKind::kArgs;
    }
    return pipeline;
  }

  static std::vector<size_t> Outputs(const KernelSource& source) {
    std::vector<size_t> outputs;
    size_t buffer = 0;
    for (const ParamKind kind : source.params) {
      if (kind == ParamKind::kOutput) outputs.push_back(buffer);
      buffer += kind == ParamKind::kInput || kind == ParamKind::kOutput;
    }
    return outputs;
  }

  const std::unique_ptr<Device> plain_;
  const bool is_software_;
  KernelCache kernels_;
  StrictRunner runner_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Device> CreateStrict(const std::string& family) {
  if (family != kSoftware && std::find(std::begin(kFamilies), std::end(kFamilies), family) == std::end(kFamilies)) {
    throw InvalidArgument("PJRT_METAL_STRICT=" + family + ": expected software, apple7, apple8 or apple9");
  }
  if (!SupportsStrictKernels()) throw FailedPrecondition("PJRT_METAL_STRICT=" + family + ": strict mode runs on Linux");
  return std::make_unique<StrictDevice>(family, DescribeHost());
}

}  // namespace pjrt_metal::software
