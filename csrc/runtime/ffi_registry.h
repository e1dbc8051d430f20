// XLA FFI handlers and types that the process registered through the PJRT FFI extension.
// Process-wide, as the extension is: registration has no client.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pjrt_metal {

// `handler` is an XLA_FFI_Handler*. Throws AlreadyExists if the target has another handler on that
// platform.
void RegisterFfiHandler(std::string_view target, std::string_view platform, void* handler);

// The handler of a custom call target on a platform ("metal", in any case of letters), or nullptr.
void* FindFfiHandler(std::string_view target, std::string_view platform);

// The id of a type by name. `id` 0 asks for the one it has, or a new one; throws AlreadyExists if
// the type has another id.
int64_t RegisterFfiType(std::string_view name, int64_t id);

}  // namespace pjrt_metal
