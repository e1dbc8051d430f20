// The extension in our own PJRT_Api table through which pjrt_metal._core reaches the runtime. Only
// our Python module reads it; its version is checked there.
#pragma once

#include "csrc/pjrt/pjrt_c_api.h"
#include "csrc/runtime/compiler_hook.h"

namespace pjrt_metal {

inline constexpr int kPrivateExtensionType = 0x4d544c;  // "MTL": outside the numbers PJRT gives out
inline constexpr int kPrivateExtensionVersion = 1;

struct PrivateExtension {
  PJRT_Extension_Base base;
  int version;
  void (*set_compiler)(CompileCallback callback);
  // Runs the runtime's own log function (PJRT_METAL_LOG) with a phase and its milliseconds.
  void (*log_phase)(const char* phase, double milliseconds, const char* detail);
};

}  // namespace pjrt_metal
