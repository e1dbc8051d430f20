#include "csrc/metal/metal_device.h"

#include <algorithm>
#include <cstdio>

#include "csrc/metal/capture.h"
#include "csrc/metal/encoder.h"
#include "csrc/metal/memory.h"
#include "csrc/metal/mpsgraph.h"
#include "csrc/metal/pipelines.h"
#include "csrc/metal/pressure.h"
#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/environment.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

// Families are cumulative, so the first that a GPU supports is its best. The targets' schedules end
// at 9.
struct Family {
  int64_t value;
  const char* target;
};
constexpr Family kFamilies[] = {{kFamilyApple9, "apple9"}, {kFamilyApple8, "apple8"}, {kFamilyApple7, "apple7"}};

// Copies: thread i moves the i-th element, which has `bytes`.
KernelSource CopyKernel(uint32_t bytes) {
  const std::string name = "pjrt_metal_copy_" + std::to_string(bytes);
  const std::string type = bytes == 16 ? "uint4" : bytes == 4 ? "uint" : "uchar";
  return {name,
          "#include <metal_stdlib>\nusing namespace metal;\nkernel void " + name + "(device const " + type +
              "* source [[buffer(0)]], device " + type +
              "* destination [[buffer(1)]],\n    uint3 position [[thread_position_in_grid]]) {\n"
              "  destination[position.x] = source[position.x];\n}\n",
          {ParamKind::kInput, ParamKind::kOutput, ParamKind::kThreadPositionInGrid},
          false};
}

std::string Gigabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (uint64_t{1} << 30));
  return text;
}

// Where machine code is kept; empty: nowhere, for a reason that is logged.
std::string ArchiveFolder(const std::string& gpu) {
  std::string hindrance;
  if (environment::ShaderValidation()) hindrance = "Metal's shader validation needs kernels that are compiled anew";
  // Metal's loader of archives aborts the process in a virtual machine.
  if (gpu.find("Paravirtual") != std::string::npos) hindrance = gpu + " has none";
  if (hindrance.empty()) return CacheFolderPath();
  LogPhase("metal: no archives", 0, hindrance);
  return "";
}

class MetalDevice : public Device {
 public:
  // Throws what hinders the use of this device. `build`: macOS's version and build as text.
  MetalDevice(Id device, const OsVersion& macos, const std::string& build, const HostFactory& host);
  ~MetalDevice() override;

  const DeviceInfo& info() const override { return info_; }
  AllocationRef Allocate(size_t bytes) override { return memory_->Allocate(bytes); }
  AllocationRef Wrap(void* data, size_t bytes) override { return memory_->Wrap(data, bytes); }
  std::vector<PipelineRef> Compile(const std::string& preamble, std::span<const KernelSource> kernels) override;
  bool has_library() const override { return true; }
  LibraryCallRef PrepareLibraryCall(const LibraryOp& op, bool whole) override { return library_.Prepare(op, whole); }
  std::unique_ptr<Encoder> NewEncoder() override;
  void OnMemoryPressure(std::function<void()> release) override;
  bool runs_on_caller() const override { return false; }

 private:
  DeviceInfo info_;
  GraphLibrary library_;
  std::unique_ptr<Pipelines> pipelines_;
  std::unique_ptr<Memory> memory_;
  std::shared_ptr<CommandQueue> queue_;
  HostKernels host_kernels_;
  std::unique_ptr<PressureWatch> watch_;
};

MetalDevice::MetalDevice(Id device, const OsVersion& macos, const std::string& build, const HostFactory& host)
    : library_(device, macos), host_kernels_(host) {
  info_.kind = Text(Send<Message::kName>(device));
  const Family* family = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                      [&](const Family& f) { return Send<Message::kSupportsFamily>(device, f.value); });
  if (family == std::end(kFamilies)) throw FailedPrecondition("no Apple GPU of family 7 or later");
  if (!Send<Message::kHasUnifiedMemory>(device)) throw FailedPrecondition("no unified memory");
  const Language* language = LanguageOf(macos);
  if (language == nullptr) {
    throw FailedPrecondition("macOS " + std::to_string(macos.major) + " is older than macOS " +
                             std::to_string(kMinimumMacos));
  }
  const uint64_t threadgroup_bytes = Send<Message::kMaxThreadgroupMemoryLength>(device);
  info_.target = std::string(family->target) + ":simd_width=" + std::to_string(kSimdWidth) +
                 ",threads=" + std::to_string(Send<Message::kMaxThreadsPerThreadgroup>(device).width) +
                 ",threadgroup_bytes=" + std::to_string(threadgroup_bytes) +
                 ",language=" + std::to_string(language->number);
  info_.platform_version = "Metal, macOS " + std::to_string(macos.major) + "." + std::to_string(macos.minor) + "." +
                           std::to_string(macos.patch) + ", " + language->option + ", safe math";
  info_.memory_bytes = Send<Message::kRecommendedMaxWorkingSetSize>(device);
  info_.max_buffer_bytes = Send<Message::kMaxBufferLength>(device);
  info_.details = "GPU family " + std::string(family->target) + ", unified memory, working set " +
                  Gigabytes(info_.memory_bytes) + ", largest buffer " + Gigabytes(info_.max_buffer_bytes) +
                  ", threadgroup memory " + std::to_string(threadgroup_bytes >> 10) + " KiB";
  // Else Metal compiles on as few threads as on a Mac whose user is at work.
  SendIfAvailable<Message::kSetMaximizeConcurrentCompilation>(device, true);
  Ref queue = Ref::Adopt(Send<Message::kNewCommandQueue>(device, kMaxCommandBuffers));
  if (!queue) throw Error(Code::kUnavailable, "Metal gave no command queue");
  Send<Message::kSetQueueLabel>(queue.get(), String("pjrt_metal").get());
  pipelines_ = std::make_unique<Pipelines>(device, *language, info_.kind + '\0' + build, ArchiveFolder(info_.kind));
  memory_ = std::make_unique<Memory>(device, queue.get(), info_.kind, info_.memory_bytes, info_.max_buffer_bytes);
  queue_ = std::make_shared<CommandQueue>(std::move(queue));
}

MetalDevice::~MetalDevice() {
  queue_->Close();
  StopCapture();
  memory_->residency().End();
}

std::unique_ptr<Encoder> MetalDevice::NewEncoder() {
  memory_->residency().Commit();
  return NewMetalEncoder(queue_, [this](uint32_t bytes) { return pipelines_->CompileOne("", CopyKernel(bytes)); });
}

std::vector<PipelineRef> MetalDevice::Compile(const std::string& preamble, std::span<const KernelSource> kernels) {
  std::vector<KernelSource> on_host, on_gpu;
  for (const KernelSource& kernel : kernels) (kernel.on_host ? on_host : on_gpu).push_back(kernel);
  const std::vector<PipelineRef> hosted = host_kernels_.Compile(preamble, on_host);
  const std::vector<PipelineRef> compiled = pipelines_->Compile(preamble, on_gpu);
  std::vector<PipelineRef> pipelines;
  size_t next_hosted = 0, next_compiled = 0;
  for (const KernelSource& kernel : kernels) {
    pipelines.push_back(kernel.on_host ? hosted[next_hosted++] : compiled[next_compiled++]);
  }
  return pipelines;
}

void MetalDevice::OnMemoryPressure(std::function<void()> release) {
  watch_ = std::make_unique<PressureWatch>([this, release = std::move(release)] {
    LogPhase("metal: memory pressure", 0, "cached memory goes back to the system");
    release();
    memory_->residency().Commit(/*removals_only=*/true);
  });
}

// Metal's devices by both of its doors, since each may be shut: the list of all was empty in a sandboxed process until
// the default device was asked for (iree-org/iree#24834), and there is no default device over ssh and in CI
// (huggingface/candle#3449).
std::vector<Ref> FindDevices(const Runtime& runtime) {
  std::vector<Ref> found;
  if (Ref first = Ref::Adopt(runtime.create_default_device())) found.push_back(std::move(first));
  const Ref all = Ref::Adopt(runtime.copy_all_devices());
  const uint64_t count = all ? Send<Message::kCount>(all.get()) : 0;
  LogPhase("metal: devices", 0,
           (found.empty() ? "no default device, " : "a default device, ") + std::to_string(count) + " in the list");
  const auto number = [](Id device) { return Send<Message::kRegistryId>(device); };
  for (uint64_t i = 0; i < count; ++i) {
    const Id device = Send<Message::kObjectAtIndex>(all.get(), i);
    const auto same = [&](const Ref& other) { return number(other.get()) == number(device); };
    if (std::ranges::none_of(found, same)) found.push_back(Ref::Retain(device));
  }
  return found;
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
  const Id process = Send<Message::kProcessInfo>(Of(Class::kNSProcessInfo));
  const OsVersion macos = Send<Message::kOperatingSystemVersion>(process);
  const std::string build = Text(Send<Message::kOperatingSystemVersionString>(process));
  const std::vector<Ref> found = FindDevices(runtime);
  if (found.empty()) {
    refuse("Metal found no GPU: MTLCreateSystemDefaultDevice gave none, and the list of MTLCopyAllDevices is empty");
  }
  std::vector<Id> usable;
  for (const Ref& device : found) {
    try {
      devices.push_back(std::make_unique<MetalDevice>(device.get(), macos, build, host));
      usable.push_back(device.get());
    } catch (const Error& error) {
      refuse(Text(Send<Message::kName>(device.get())) + ": " + error.what());
    }
  }
  // What was asked for and cannot be is an error, unlike what a machine lacks.
  const std::string capture = environment::Capture();
  if (!capture.empty() && !usable.empty()) StartCapture(usable[0], capture);
  return devices;
}

}  // namespace pjrt_metal::metal
