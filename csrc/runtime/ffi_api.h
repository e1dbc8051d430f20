// The functions that an XLA FFI handler may call back, and what one call of a handler knows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "csrc/runtime/error.h"
#include "csrc/runtime/ffi_registry.h"

namespace pjrt_metal {

// An object that a handler made in one of the stages; the runtime deletes it.
class FfiState {
 public:
  FfiState() = default;
  FfiState(const FfiState&) = delete;
  FfiState& operator=(const FfiState&) = delete;
  ~FfiState();
  void Set(int64_t type, void* object);  // throws AlreadyExists if there is one
  void* Get(int64_t type) const;         // throws NotFound, InvalidArgument for another type

 private:
  int64_t type_ = 0;
  void* object_ = nullptr;
};

// XLA_FFI_ExecutionContext. The stages' states: instantiation's belongs to the loaded call, the others' to one run.
struct FfiContext {
  int32_t device = 0;
  int64_t run = 0;
  std::array<FfiState*, xla_ffi::kStages> states{};
  const FfiUserData* user_data = nullptr;  // of the execution, if it has some
};

const xla_ffi::Api& FfiApi();

// The context as handlers see it.
inline xla_ffi::Context* Opaque(FfiContext& context) { return reinterpret_cast<xla_ffi::Context*>(&context); }

// Takes the error's code and message and frees it; none for nullptr.
std::optional<Error> TakeFfiError(xla_ffi::Error* error);

// Waits until the handler that made it is done, and frees it.
std::optional<Error> AwaitFfiFuture(xla_ffi::Future* future);

}  // namespace pjrt_metal
