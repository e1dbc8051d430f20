// The one device of the programs here: it compiles nothing, and its kernels touch every byte they were bound to. So a
// Program may be changed in any place and be run: what goes wrong is the runtime's fault, not its kernels'.
#include "tests/robustness/plain_device.h"

#include <cstdlib>
#include <cstring>

namespace pjrt_metal {
namespace {

constexpr size_t kMemory = 64 << 20;
constexpr size_t kLargest = 4 << 20;
// Commands of one submission: enough for every sound Program here, and an end for loops that have none.
constexpr int kMostCommands = 20000;

class Memory : public Allocation {
 public:
  Memory(std::byte* data, size_t size) : Allocation(data, size) {}
  ~Memory() override { std::free(data_); }
};

class Borrowed : public Allocation {
 public:
  Borrowed(std::byte* data, size_t size) : Allocation(data, size) {}
};

struct PlainPipeline : Pipeline {
  std::vector<ParamKind> buffers;
};

std::byte* Address(const Binding& binding, size_t bytes) {
  if (binding.allocation == nullptr) std::abort();
  const size_t size = binding.allocation->size();
  if (binding.offset > size || bytes > size - binding.offset) std::abort();
  return binding.allocation->data() + binding.offset;
}

class PlainEncoder : public Encoder {
 public:
  void Dispatch(const Pipeline& pipeline, std::span<const Binding> buffers, std::span<const std::byte> args,
                const Grid&) override {
    Count();
    const auto& kinds = static_cast<const PlainPipeline&>(pipeline).buffers;
    if (kinds.size() != buffers.size()) std::abort();
    std::byte sum{1};
    for (const std::byte b : args) sum ^= b;
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (kinds[i] == ParamKind::kInput) sum ^= Sum(buffers[i]);
    }
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (kinds[i] == ParamKind::kOutput && buffers[i].bytes > 0) {
        std::memset(Address(buffers[i], buffers[i].bytes), static_cast<int>(sum), buffers[i].bytes);
      }
    }
  }
  void Copy(Binding source, Binding destination, size_t bytes) override {
    Count();
    const std::byte* from = Address(source, bytes);
    std::byte* to = Address(destination, bytes);
    if (bytes > 0) std::memmove(to, from, bytes);
  }
  void Call(const LibraryCall&, std::span<const Binding> buffers) override {
    Count();
    const std::byte sum = Sum(buffers[0]) ^ Sum(buffers[1]);
    std::memset(Address(buffers[2], buffers[2].bytes), static_cast<int>(sum), buffers[2].bytes);
  }
  void Host(std::function<void()> work) override { work(); }
  void Sync() override { Count(); }
  double SyncAndTime() override { return 1; }
  void Commit(std::function<void(std::optional<Error>)> done) override { done(std::nullopt); }

 private:
  void Count() {
    if (++commands_ > kMostCommands) throw Internal("the plain device has done enough for one program");
  }
  static std::byte Sum(const Binding& binding) {
    std::byte sum{0};
    const std::byte* data = Address(binding, binding.bytes);
    for (size_t i = 0; i < binding.bytes; ++i) sum ^= data[i];
    return sum;
  }
  int commands_ = 0;
};

class PlainDevice : public Device {
 public:
  PlainDevice() {
    const char* target = std::getenv("PLAIN_TARGET");
    info_ = {"plain", target == nullptr ? kPlainTarget : target, "plain 1", kMemory, kLargest, "no hardware"};
  }
  const DeviceInfo& info() const override { return info_; }
  AllocationRef Allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes > kLargest || posix_memalign(&data, 256, bytes == 0 ? 1 : bytes) != 0) {
      throw ResourceExhausted("no memory on the plain device");
    }
    std::memset(data, 0xff, bytes);
    return std::make_shared<Memory>(static_cast<std::byte*>(data), bytes);
  }
  AllocationRef Wrap(void* data, size_t bytes) override {
    if (reinterpret_cast<uintptr_t>(data) % 64 != 0) return nullptr;
    return std::make_shared<Borrowed>(static_cast<std::byte*>(data), bytes);
  }
  std::vector<PipelineRef> Compile(const std::string&, std::span<const KernelSource> kernels) override {
    std::vector<PipelineRef> pipelines;
    for (const KernelSource& kernel : kernels) {
      auto pipeline = std::make_shared<PlainPipeline>();
      for (const ParamKind kind : kernel.params) {
        if (kind <= ParamKind::kOutput) pipeline->buffers.push_back(kind);
      }
      pipelines.push_back(std::move(pipeline));
    }
    return pipelines;
  }
  bool has_library() const override { return true; }
  LibraryCallRef PrepareLibraryCall(const LibraryOp&, bool whole) override {
    return whole ? std::make_shared<const LibraryCall>() : nullptr;
  }
  std::unique_ptr<Encoder> NewEncoder() override { return std::make_unique<PlainEncoder>(); }
  bool runs_on_caller() const override { return true; }

 private:
  DeviceInfo info_;
};

}  // namespace

std::vector<std::unique_ptr<Device>> DiscoverDevices() {
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < 2; ++i) devices.push_back(std::make_unique<PlainDevice>());
  return devices;
}

}  // namespace pjrt_metal
