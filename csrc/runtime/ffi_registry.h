// XLA FFI handlers and types that the process registered through the PJRT FFI extension or our own.
// Process-wide, as the extensions are: registration has no client.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "csrc/runtime/xla_ffi.h"

namespace pjrt_metal {

// What a client gives the handlers of one execution, by type id.
using FfiUserData = std::map<int64_t, void*>;

// One handler a stage; only the last is required.
using FfiHandlers = std::array<xla_ffi::Handler, xla_ffi::kStages>;
using FfiDeleter = void (*)(void* object);

// Throws AlreadyExists if the target has another handler on that platform, InvalidArgument without one to execute.
void RegisterFfiHandlers(std::string_view target, std::string_view platform, const FfiHandlers& handlers);

// The handlers of a custom call target on a platform ("metal", in any case of letters); none of them is set if it has
// none.
FfiHandlers FindFfiHandlers(std::string_view target, std::string_view platform);

// The id of a type by name. `id` 0 asks for the one it has, or a new one; throws AlreadyExists if
// the type has another id. `deleter`, if any, ends objects of the type that the runtime owns.
int64_t RegisterFfiType(std::string_view name, int64_t id, FfiDeleter deleter = nullptr);

// nullptr if the type is unknown or has none.
FfiDeleter FindFfiDeleter(int64_t type);

}  // namespace pjrt_metal
