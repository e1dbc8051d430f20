#include "csrc/runtime/host_call.h"

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "csrc/runtime/ffi_api.h"
#include "csrc/runtime/python.h"
#include "csrc/runtime/python_callback.h"

namespace pjrt_metal {
namespace {

constexpr const char* kPlatform = "metal";

FfiHandlers Find(const std::string& target) {
  FfiHandlers handlers = FindFfiHandlers(target, kPlatform);
  if (handlers[xla_ffi::kExecute] != nullptr) return handlers;
  // jaxlib's are registered when the first program calls one: not at every start of JAX.
  RunPython("import pjrt_metal.host_calls\npjrt_metal.host_calls.register_lapack()");
  handlers = FindFfiHandlers(target, kPlatform);
  if (handlers[xla_ffi::kExecute] == nullptr) {
    throw Error(Code::kNotFound, "the program calls \"" + target +
                                     "\", which this process has not registered for metal: "
                                     "jax.ffi.register_ffi_target(\"" +
                                     target + "\", handler, platform=\"metal\") before it is compiled");
  }
  return handlers;
}

class FfiCall : public HostCall {
 public:
  FfiCall(const Step& step, int device)
      : target_(step.target),
        arrays_(step.arrays),
        operands_(step.operands),
        attributes_(step.attributes),
        device_(device),
        handlers_(Find(target_)) {
    for (const HostArray& array : arrays_) dtypes_.push_back(FfiDataType(array.dtype));
    CheckVersion();
    FfiContext context = NewContext();
    CallStage(xla_ffi::kInstantiate, context, {});
  }

  void Run(std::span<std::byte* const> addresses, const FfiUserData* user_data) const override {
    std::vector<xla_ffi::Buffer> buffers;
    buffers.reserve(arrays_.size());
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const auto& dims = arrays_[i].dims;
      buffers.push_back(
          {sizeof(xla_ffi::Buffer), nullptr, dtypes_[i], addresses[i], static_cast<int64_t>(dims.size()), dims.data()});
    }
    std::array<FfiState, xla_ffi::kStages> states;
    FfiContext context = NewContext();
    context.user_data = user_data;
    context.states[xla_ffi::kPrepare] = &states[xla_ffi::kPrepare];
    context.states[xla_ffi::kInitialize] = &states[xla_ffi::kInitialize];
    for (const int stage : {xla_ffi::kPrepare, xla_ffi::kInitialize, xla_ffi::kExecute}) {
      CallStage(stage, context, buffers);
    }
  }

 private:
  FfiContext NewContext() const {
    static std::atomic<int64_t> runs = 0;
    FfiContext context;
    context.device = device_;
    context.run = ++runs;
    context.states[xla_ffi::kInstantiate] = &instantiated_;
    return context;
  }

  xla_ffi::CallFrame NewFrame(int stage) const {
    xla_ffi::CallFrame frame = {};
    frame.struct_size = offsetof(xla_ffi::CallFrame, attributes) + sizeof frame.attributes;
    frame.api = &FfiApi();
    frame.stage = stage;
    frame.operands.struct_size = frame.results.struct_size = sizeof(xla_ffi::Arguments);
    frame.attributes = attributes_->view();
    return frame;
  }

  // A handler is asked with an extension of the frame which version of the FFI it was compiled for.
  void CheckVersion() const {
    xla_ffi::Metadata metadata = {};
    metadata.struct_size = sizeof metadata;
    metadata.version.struct_size = sizeof metadata.version;
    xla_ffi::MetadataExtension extension = {{sizeof extension, xla_ffi::kMetadataExtension, nullptr}, &metadata};
    xla_ffi::CallFrame frame = NewFrame(xla_ffi::kExecute);
    frame.attributes.count = 0;
    frame.extension = &extension.base;
    Call(handlers_[xla_ffi::kExecute], frame);
    if (metadata.version.major != xla_ffi::kMajor || metadata.version.minor > xla_ffi::kMinor) {
      throw Unimplemented("the handler of \"" + target_ + "\" was compiled for version " +
                          std::to_string(metadata.version.major) + "." + std::to_string(metadata.version.minor) +
                          " of XLA's FFI; this plugin provides " + std::to_string(xla_ffi::kMajor) + "." +
                          std::to_string(xla_ffi::kMinor));
    }
  }

  void CallStage(int stage, FfiContext& context, std::span<xla_ffi::Buffer> buffers) const {
    const xla_ffi::Handler handler = handlers_[static_cast<size_t>(stage)];
    if (handler == nullptr) return;
    xla_ffi::CallFrame frame = NewFrame(stage);
    frame.context = Opaque(context);
    const std::vector<int> kinds(buffers.size(), xla_ffi::kBuffer);
    std::vector<void*> values;
    values.reserve(buffers.size());
    for (xla_ffi::Buffer& buffer : buffers) values.push_back(&buffer);
    if (!buffers.empty()) {
      const auto fill = [&](xla_ffi::Arguments& arguments, size_t begin, size_t end) {
        arguments.count = static_cast<int64_t>(end - begin);
        arguments.kinds = kinds.data() + begin;
        arguments.values = values.data() + begin;
      };
      fill(frame.operands, 0, operands_);
      fill(frame.results, operands_, buffers.size());
    }
    Call(handler, frame);
  }

  void Call(xla_ffi::Handler handler, xla_ffi::CallFrame& frame) const {
    std::optional<Error> error;
    try {
      error = TakeFfiError(handler(&frame));
      if (!error && frame.future != nullptr) error = AwaitFfiFuture(frame.future);
    } catch (const std::exception& thrown) {
      error = Internal(std::string("threw an exception: ") + thrown.what());
    } catch (...) {
      error = Internal("threw an exception");
    }
    if (error) throw Error(error->code(), "\"" + target_ + "\": " + error->what());
  }

  const std::string target_;
  const std::vector<HostArray> arrays_;
  const size_t operands_;
  const std::shared_ptr<const FfiAttributes> attributes_;
  const int32_t device_;
  const FfiHandlers handlers_;
  std::vector<int> dtypes_;
  mutable FfiState instantiated_;  // set in the constructor, by its handler
};

}  // namespace

std::unique_ptr<HostCall> NewHostCall(const Step& step, int device) {
  if (step.target == kPythonCallback) return NewPythonCall(step);
  return std::make_unique<FfiCall>(step, device);
}

}  // namespace pjrt_metal
