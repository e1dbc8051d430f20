// Python callbacks (jax.pure_callback and its like): the program names one by number, and pjrt_metal/callbacks.py,
// which gave out the numbers, runs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "csrc/runtime/host_call.h"

namespace pjrt_metal {

// The custom call's target; its attribute "id" (u64) is the callback's number.
inline constexpr const char* kPythonCallback = "pjrt_metal_python_callback";

struct PythonArray {
  int dtype;  // PJRT_Buffer_Type
  void* data;
  const int64_t* dims;
  size_t rank;
  size_t bytes;
};

// C ABI, also the private extension's. Takes the GIL itself. Returns 0, or a Code after calling `emit` once with the
// message.
using PythonCallback = int (*)(uint64_t id, const PythonArray* operands, size_t num_operands,
                               const PythonArray* results, size_t num_results,
                               void (*emit)(void* sink, const char* bytes, size_t size), void* sink);

// nullptr removes it and returns when no callback is running.
void SetPythonCallback(PythonCallback callback);

std::unique_ptr<HostCall> NewPythonCall(const Step& step);

}  // namespace pjrt_metal
