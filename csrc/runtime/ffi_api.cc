#include "csrc/runtime/ffi_api.h"

#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

namespace pjrt_metal {

struct xla_ffi::Error {
  Code code;
  std::string message;
};

struct xla_ffi::Future {
  std::mutex mutex;
  std::condition_variable ready;
  bool done = false;
  xla_ffi::Error* error = nullptr;
};

namespace {

xla_ffi::Error* NewError(Code code, const std::string& message) { return new xla_ffi::Error{code, message}; }

// Runs `body`; what it throws becomes the error that handlers understand.
template <class Body>
xla_ffi::Error* Guarded(Body&& body) {
  try {
    body();
    return nullptr;
  } catch (const Error& error) {
    return NewError(error.code(), error.what());
  } catch (const std::exception& error) {
    return NewError(Code::kInternal, error.what());
  }
}

FfiContext& ContextOf(xla_ffi::Context* context) {
  if (context == nullptr) throw InvalidArgument("the FFI context is null");
  return *reinterpret_cast<FfiContext*>(context);
}

xla_ffi::Error* ErrorCreate(xla_ffi::ErrorCreateArgs* args) {
  return NewError(static_cast<Code>(args->code), args->message == nullptr ? "" : args->message);
}

void ErrorDetails(xla_ffi::ErrorDetailsArgs* args) {
  args->message = args->error->message.c_str();
  if (args->struct_size >= offsetof(xla_ffi::ErrorDetailsArgs, code) + sizeof args->code) {
    args->code = static_cast<int>(args->error->code);
  }
}

void ErrorDestroy(xla_ffi::ErrorDestroyArgs* args) { delete args->error; }

xla_ffi::Error* HandlerRegister(void*) {
  return NewError(Code::kUnimplemented, "handlers are registered with jax.ffi.register_ffi_target(platform=\"metal\")");
}

xla_ffi::Error* StreamGet(xla_ffi::StreamGetArgs*) {
  return NewError(Code::kUnimplemented, "handlers on metal run on the host, on unified memory: there is no stream");
}

xla_ffi::Error* TypeRegister(xla_ffi::TypeRegisterArgs* args) {
  return Guarded([&] {
    const FfiDeleter deleter = args->info == nullptr ? nullptr : args->info->deleter;
    args->type->value = RegisterFfiType({args->name.data, args->name.size}, args->type->value, deleter);
  });
}

xla_ffi::Error* ContextGet(xla_ffi::ContextGetArgs* args) {
  return Guarded([&] {
    const FfiUserData* data = ContextOf(args->context).user_data;
    const auto found = data == nullptr ? FfiUserData::const_iterator() : data->find(args->type->value);
    if (data == nullptr || found == data->end()) {
      throw Error(Code::kNotFound, "this execution has no user data of type " + std::to_string(args->type->value));
    }
    args->data = found->second;
  });
}

FfiState& StateOf(const xla_ffi::StateArgs& args) {
  FfiContext& context = ContextOf(args.context);
  if (args.stage < 0 || args.stage >= xla_ffi::kStages || context.states[static_cast<size_t>(args.stage)] == nullptr) {
    throw InvalidArgument("stage " + std::to_string(args.stage) + " has no state");
  }
  return *context.states[static_cast<size_t>(args.stage)];
}

xla_ffi::Error* StateSet(xla_ffi::StateArgs* args) {
  return Guarded([&] { StateOf(*args).Set(args->type->value, args->state); });
}

xla_ffi::Error* StateGet(xla_ffi::StateArgs* args) {
  return Guarded([&] { args->state = StateOf(*args).Get(args->type->value); });
}

xla_ffi::Error* MemoryAllocate(xla_ffi::MemoryArgs* args) {
  const size_t alignment = args->alignment < sizeof(void*) ? sizeof(void*) : args->alignment;
  if (posix_memalign(&args->data, alignment, args->size == 0 ? 1 : args->size) == 0) return nullptr;
  return NewError(Code::kResourceExhausted, "no memory for " + std::to_string(args->size) + " bytes of scratch");
}

xla_ffi::Error* MemoryFree(xla_ffi::MemoryFreeArgs* args) {
  std::free(args->data);
  return nullptr;
}

// On the caller's thread: a handler that splits its work finds it done when it waits.
xla_ffi::Error* Schedule(xla_ffi::ScheduleArgs* args) {
  args->task(args->data);
  return nullptr;
}

xla_ffi::Error* NumThreads(xla_ffi::NumThreadsArgs* args) {
  *args->num_threads = 1;
  return nullptr;
}

xla_ffi::Error* FutureCreate(xla_ffi::FutureCreateArgs* args) {
  args->future = new xla_ffi::Future;
  return nullptr;
}

xla_ffi::Error* Finish(xla_ffi::Future& future, xla_ffi::Error* error) {
  const std::lock_guard lock(future.mutex);
  if (future.done) return NewError(Code::kFailedPrecondition, "the FFI future is set already");
  future.error = error;
  future.done = true;
  future.ready.notify_all();
  return nullptr;
}

// SetAvailable's arguments end before the error.
xla_ffi::Error* FutureSetAvailable(xla_ffi::FutureArgs* args) { return Finish(*args->future, nullptr); }
xla_ffi::Error* FutureSetError(xla_ffi::FutureArgs* args) { return Finish(*args->future, args->error); }

xla_ffi::Error* RunId(xla_ffi::RunIdArgs* args) {
  return Guarded([&] { args->run_id = ContextOf(args->context).run; });
}

xla_ffi::Error* DeviceOrdinal(xla_ffi::DeviceOrdinalArgs* args) {
  return Guarded([&] { args->ordinal = ContextOf(args->context).device; });
}

xla_ffi::Error* FindExtension(xla_ffi::FindExtensionArgs* args) {
  args->found = nullptr;
  return nullptr;
}

xla_ffi::Error* CustomOptions(xla_ffi::CustomOptionsArgs* args) {
  static const xla_ffi::Attributes none = {sizeof(xla_ffi::Attributes), nullptr, 0, nullptr, nullptr, nullptr};
  args->options = &none;
  return nullptr;
}

}  // namespace

FfiState::~FfiState() {
  if (object_ == nullptr) return;
  if (const FfiDeleter deleter = FindFfiDeleter(type_)) deleter(object_);
}

void FfiState::Set(int64_t type, void* object) {
  if (object_ != nullptr) throw Error(Code::kAlreadyExists, "the stage's state is set already");
  type_ = type;
  object_ = object;
}

void* FfiState::Get(int64_t type) const {
  if (object_ == nullptr) throw Error(Code::kNotFound, "the stage's state is not set");
  if (type != type_) {
    throw InvalidArgument("the stage's state has type " + std::to_string(type_) + ", not " + std::to_string(type));
  }
  return object_;
}

std::optional<Error> TakeFfiError(xla_ffi::Error* error) {
  if (error == nullptr) return std::nullopt;
  const std::unique_ptr<xla_ffi::Error> owned(error);
  return Error(owned->code, owned->message);
}

std::optional<Error> AwaitFfiFuture(xla_ffi::Future* future) {
  std::unique_lock lock(future->mutex);
  future->ready.wait(lock, [&] { return future->done; });
  auto error = TakeFfiError(future->error);
  lock.unlock();
  delete future;
  return error;
}

const xla_ffi::Api& FfiApi() {
  static const xla_ffi::Api api = {
      sizeof(xla_ffi::Api),
      nullptr,
      {sizeof(xla_ffi::Version), nullptr, xla_ffi::kMajor, xla_ffi::kMinor},
      nullptr,
      ErrorCreate,
      ErrorDetails,
      ErrorDestroy,
      HandlerRegister,
      StreamGet,
      TypeRegister,
      ContextGet,
      StateSet,
      StateGet,
      MemoryAllocate,
      MemoryFree,
      Schedule,
      NumThreads,
      FutureCreate,
      FutureSetAvailable,
      FutureSetError,
      RunId,
      DeviceOrdinal,
      FindExtension,
      CustomOptions,
  };
  return api;
}

}  // namespace pjrt_metal
