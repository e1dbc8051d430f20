#include "csrc/metal/metal_device.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <map>
#include <thread>

#include "csrc/metal/encoder.h"
#include "csrc/metal/mpsgraph.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

// Kernels are compiled on this many threads; Metal's compiler runs in processes of its own.
constexpr size_t kCompileThreads = 8;
// Argument table entries for buffers, on every Apple GPU (Metal feature set tables).
constexpr uint32_t kMaxBuffers = 31;
// The SIMD width of every Apple GPU, which the targets' schedules count on.
constexpr uint64_t kSimdWidth = 32;

// Families are cumulative, so the first that a GPU supports is its best. The targets' schedules end
// at 9.
struct Family {
  int64_t value;
  const char* target;
};
constexpr Family kFamilies[] = {{kFamilyApple9, "apple9"}, {kFamilyApple8, "apple8"}, {kFamilyApple7, "apple7"}};

// MSL 3.1 brought bfloat.
struct Language {
  int64_t macos;
  uint64_t value;
  int number;  // major * 10 + minor, as in a target's text
  const char* option;
};
constexpr Language kLanguages[] = {{14, kLanguageVersion3_1, 31, "metal3.1"},
                                   {kMinimumMacos, kLanguageVersion3_0, 30, "metal3.0"}};

const KernelSource& CopyBytesKernel() {
  static const KernelSource kernel = {"pjrt_metal_copy_bytes",
                                      R"(#include <metal_stdlib>
using namespace metal;
kernel void pjrt_metal_copy_bytes(device const uchar* source [[buffer(0)]],
                                  device uchar* destination [[buffer(1)]],
                                  uint3 position [[thread_position_in_grid]]) {
  destination[position.x] = source[position.x];
}
)",
                                      {ParamKind::kInput, ParamKind::kOutput, ParamKind::kThreadPositionInGrid},
                                      false};
  return kernel;
}

// The source in a file of its own, so that the error can name it; the source itself if there is no
// room.
std::string SaveSource(const std::string& source) {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/pjrt_metal_XXXXXX.metal";
  const int file = mkstemps(path.data(), 6);
  if (file < 0) return "<no file: " + path + ">\n" + source;
  const bool written = write(file, source.data(), source.size()) == static_cast<ssize_t>(source.size());
  close(file);
  return written ? path : "<not written: " + path + ">\n" + source;
}

void LogGpuTimes(const GpuTimes& times) {
  if (!LogEnabled()) return;
  LogPhase("execute: gpu", (times.end - times.start) * 1e3,
           std::to_string(times.commands) + " commands of " + std::to_string(times.submissions) + " submissions");
}

class MetalDevice : public Device {
 public:
  // Throws what hinders the use of this device.
  MetalDevice(Id device, const OsVersion& macos, const HostFactory& host);
  ~MetalDevice() override { queue_->Close(); }

  const DeviceInfo& info() const override { return info_; }
  AllocationRef Allocate(size_t bytes) override;
  AllocationRef Wrap(void* data, size_t bytes) override;
  std::vector<PipelineRef> Compile(const std::string& preamble, std::span<const KernelSource> kernels) override;
  LibraryCallRef PrepareLibraryCall(const LibraryOp& op, bool whole) override { return library_.Prepare(op, whole); }
  std::unique_ptr<Encoder> NewEncoder() override { return NewMetalEncoder(queue_); }
  bool runs_on_caller() const override { return false; }

 private:
  std::shared_ptr<const MetalPipeline> CompileOne(const std::string& preamble, const KernelSource& kernel);
  std::shared_ptr<const MetalPipeline> Build(const std::string& source, const KernelSource& kernel) const;
  Ref Function(const std::string& source, const std::string& name) const;

  Ref device_;
  DeviceInfo info_;
  const Language* language_;
  GraphLibrary library_;
  std::shared_ptr<CommandQueue> queue_;
  HostKernels host_kernels_;
  std::mutex cache_mutex_;
  std::map<std::string, std::shared_ptr<const MetalPipeline>> cache_;  // by all that Build reads
};

MetalDevice::MetalDevice(Id device, const OsVersion& macos, const HostFactory& host)
    : device_(Ref::Retain(device)), library_(device, macos), host_kernels_(host) {
  info_.kind = Text(Send<Message::kName>(device));
  const Family* family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                      [&](const Family& f) { return Send<Message::kSupportsFamily>(device, f.value); });
  if (family == std::end(kFamilies)) throw FailedPrecondition("no Apple GPU of family 7 or later");
  if (!Send<Message::kHasUnifiedMemory>(device)) throw FailedPrecondition("no unified memory");
  language_ = std::find_if(std::begin(kLanguages), std::end(kLanguages),
                           [&](const Language& l) { return macos.major >= l.macos; });
  if (language_ == std::end(kLanguages)) {
    throw FailedPrecondition("macOS " + std::to_string(macos.major) + " is older than macOS " +
                             std::to_string(kMinimumMacos));
  }
  info_.target = std::string(family->target) + ":simd_width=" + std::to_string(kSimdWidth) +
                 ",threads=" + std::to_string(Send<Message::kMaxThreadsPerThreadgroup>(device).width) +
                 ",threadgroup_bytes=" + std::to_string(Send<Message::kMaxThreadgroupMemoryLength>(device)) +
                 ",language=" + std::to_string(language_->number);
  info_.platform_version = "Metal, macOS " + std::to_string(macos.major) + "." + std::to_string(macos.minor) + "." +
                           std::to_string(macos.patch) + ", " + language_->option + ", safe math";
  info_.memory_bytes = Send<Message::kRecommendedMaxWorkingSetSize>(device);
  info_.max_buffer_bytes = Send<Message::kMaxBufferLength>(device);
  Ref queue = Ref::Adopt(Send<Message::kNewCommandQueue>(device));
  if (!queue) throw Error(Code::kUnavailable, "Metal gave no command queue");
  queue_ = std::make_shared<CommandQueue>(
      device, std::move(queue), [this] { return CompileOne("", CopyBytesKernel()); }, LogGpuTimes);
}

AllocationRef MetalDevice::Allocate(size_t bytes) {
  const Pool pool;
  // Metal has no empty buffers.
  const size_t length = std::max<size_t>(bytes, 1);
  Ref buffer;
  if (length <= info_.max_buffer_bytes) {
    buffer = Ref::Adopt(Send<Message::kNewBufferWithLength>(device_.get(), length, kStorageModeShared));
  }
  if (!buffer) {
    throw ResourceExhausted(info_.kind + ": no memory for a buffer of " + std::to_string(bytes) +
                            " bytes (the largest possible is " + std::to_string(info_.max_buffer_bytes) + ")");
  }
  auto* data = static_cast<std::byte*>(Send<Message::kContents>(buffer.get()));
  return std::make_shared<MetalAllocation>(std::move(buffer), data, bytes);
}

AllocationRef MetalDevice::Wrap(void* data, size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (bytes == 0 || bytes > info_.max_buffer_bytes - page || reinterpret_cast<uintptr_t>(data) % page != 0) {
    return nullptr;
  }
  const Pool pool;
  // Metal takes whole pages; the rest of the last one is mapped but no kernel touches it.
  const size_t length = (bytes + page - 1) / page * page;
  Ref buffer =
      Ref::Adopt(Send<Message::kNewBufferWithBytesNoCopy>(device_.get(), data, length, kStorageModeShared, nullptr));
  if (!buffer) return nullptr;
  return std::make_shared<MetalAllocation>(std::move(buffer), static_cast<std::byte*>(data), bytes);
}

Ref MetalDevice::Function(const std::string& source, const std::string& name) const {
  const Ref options = New(Class::kMTLCompileOptions);
  // IEEE-safe arithmetic: a NaN is a NaN, and no reassociation.
  if (SendIfAvailable<Message::kSetMathMode>(options.get(), kMathModeSafe)) {
    SendIfAvailable<Message::kSetMathFloatingPointFunctions>(options.get(), kMathFunctionsPrecise);
  } else {
    Send<Message::kSetFastMathEnabled>(options.get(), false);
  }
  Send<Message::kSetLanguageVersion>(options.get(), language_->value);
  Id error = nullptr;
  const Ref text = String(source);
  const Ref library =
      Ref::Adopt(Send<Message::kNewLibraryWithSource>(device_.get(), text.get(), options.get(), &error));
  // A library may come with an error that holds only warnings.
  if (!library) {
    const std::string path = SaveSource(source);
    throw Internal(name + ": Metal could not compile it: " + ErrorText(error) +
                   "\nrepeat with: xcrun -sdk macosx metal -std=" + language_->option +
                   " -fno-fast-math -c -o /dev/null " + path);
  }
  Ref function = Ref::Adopt(Send<Message::kNewFunctionWithName>(library.get(), String(name).get()));
  if (!function) throw Internal(name + ": its source does not define a kernel of that name");
  return function;
}

std::shared_ptr<const MetalPipeline> MetalDevice::Build(const std::string& source, const KernelSource& kernel) const {
  auto pipeline = std::make_shared<MetalPipeline>();
  pipeline->name = kernel.name;
  uint32_t buffers = 0;
  for (const ParamKind kind : kernel.params) {
    if (kind == ParamKind::kInput || kind == ParamKind::kOutput) {
      pipeline->buffers.push_back({buffers++, kind == ParamKind::kOutput});
    } else if (kind == ParamKind::kArgs) {
      pipeline->args_index = static_cast<int>(buffers++);
    }
  }
  if (buffers > kMaxBuffers) {
    throw InvalidArgument(kernel.name + ": takes " + std::to_string(buffers) + " buffers, Metal binds at most " +
                          std::to_string(kMaxBuffers));
  }
  const Pool pool;
  const Ref function = Function(source, kernel.name);
  Id error = nullptr;
  pipeline->state = Ref::Adopt(Send<Message::kNewComputePipelineState>(device_.get(), function.get(), &error));
  if (!pipeline->state) {
    throw Internal(kernel.name + ": Metal could not make its pipeline: " + ErrorText(error) +
                   "\nsource: " + SaveSource(source));
  }
  const Id state = pipeline->state.get();
  const uint64_t width = Send<Message::kThreadExecutionWidth>(state);
  if (width != kSimdWidth) {
    throw Internal(kernel.name + ": runs with " + std::to_string(width) +
                   " threads in a SIMD group; kernels are written for " + std::to_string(kSimdWidth));
  }
  pipeline->max_threads = static_cast<uint32_t>(Send<Message::kMaxTotalThreadsPerThreadgroup>(state));
  return pipeline;
}

std::shared_ptr<const MetalPipeline> MetalDevice::CompileOne(const std::string& preamble, const KernelSource& kernel) {
  const std::string source = preamble + "\n" + kernel.source;
  std::string key = kernel.name + '\0';
  for (const ParamKind kind : kernel.params) key += static_cast<char>(kind);
  key += '\0' + source;
  {
    const std::lock_guard lock(cache_mutex_);
    const auto found = cache_.find(key);
    if (found != cache_.end()) return found->second;
  }
  auto pipeline = Build(source, kernel);
  const std::lock_guard lock(cache_mutex_);
  return cache_.emplace(std::move(key), std::move(pipeline)).first->second;
}

std::vector<PipelineRef> MetalDevice::Compile(const std::string& preamble, std::span<const KernelSource> kernels) {
  std::vector<KernelSource> on_host;
  std::ranges::copy_if(kernels, std::back_inserter(on_host), &KernelSource::on_host);
  std::vector<PipelineRef> hosted = host_kernels_.Compile(preamble, on_host);
  std::vector<PipelineRef> pipelines(kernels.size());
  for (size_t i = 0, next = 0; i < kernels.size(); ++i) {
    if (kernels[i].on_host) pipelines[i] = std::move(hosted[next++]);
  }
  std::vector<std::exception_ptr> errors(kernels.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < kernels.size(); i = next++) {
      if (pipelines[i] != nullptr) continue;
      try {
        pipelines[i] = CompileOne(preamble, kernels[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(kernels.size(), kCompileThreads); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return pipelines;
}

}  // namespace

std::vector<std::unique_ptr<Device>> Discover(std::vector<std::string>* refused, const HostFactory& host) {
  std::vector<std::unique_ptr<Device>> devices;
  const auto refuse = [&](const std::string& why) {
    if (refused != nullptr) refused->push_back(why);
  };
  const Runtime& runtime = GetRuntime();
  if (!runtime.missing.empty()) {
    refuse("no Metal: this process lacks " + runtime.missing);
    return devices;
  }
  const Pool pool;
  const OsVersion macos = Send<Message::kOperatingSystemVersion>(
      Send<Message::kProcessInfo>(runtime.classes[static_cast<size_t>(Class::kNSProcessInfo)]));
  const Ref found = Ref::Adopt(runtime.copy_all_devices());
  const uint64_t count = found ? Send<Message::kCount>(found.get()) : 0;
  if (count == 0) refuse("Metal found no GPU");
  for (uint64_t i = 0; i < count; ++i) {
    const Id device = Send<Message::kObjectAtIndex>(found.get(), i);
    try {
      devices.push_back(std::make_unique<MetalDevice>(device, macos, host));
    } catch (const Error& error) {
      refuse(Text(Send<Message::kName>(device)) + ": " + error.what());
    }
  }
  return devices;
}

}  // namespace pjrt_metal::metal
