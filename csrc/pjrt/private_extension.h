// The extension in our own PJRT_Api table through which our Python modules (pjrt_metal._core, core_ctypes.py,
// host_calls.py, callbacks.py, jax_patches.py) reach the runtime; they check its version.
#pragma once

#include "csrc/pjrt/pjrt_c_api.h"
#include "csrc/runtime/compiler_hook.h"
#include "csrc/runtime/python_callback.h"

namespace pjrt_metal {

inline constexpr int kPrivateExtensionType = 0x4d544c;  // "MTL": outside the numbers PJRT gives out
inline constexpr int kPrivateExtensionVersion = 3;

enum class HostReadScope : int { kProcess = 0, kThread = 1 };
enum class HostReadGuard : int { kUnset = 0, kAllow = 1, kGuard = 2 };

struct PrivateExtension {
  PJRT_Extension_Base base;
  int version;
  void (*set_compiler)(CompileCallback callback);
  // Runs the runtime's own log function (PJRT_METAL_LOG) with a phase and its milliseconds.
  void (*log_phase)(const char* phase, double milliseconds, const char* detail);
  void (*set_python_callback)(PythonCallback callback);
  // XLA FFI handlers of a target for platform "metal", one a stage (see xla_ffi::Stage); returns what is wrong, until
  // the next call on this thread, or nullptr.
  const char* (*register_ffi_handlers)(const char* target, void* const* handlers);
  // `*id` as for RegisterFfiType, which sets it.
  const char* (*register_ffi_type)(const char* name, int64_t* id, void (*deleter)(void*));
  // JAX's guard of device-to-host transfers, for the process or for this thread, whose word counts first.
  void (*guard_host_reads)(HostReadScope scope, HostReadGuard guard);
  // In a child process: see RunTrials.
  int (*run_trials)(const char* path);
};

}  // namespace pjrt_metal
