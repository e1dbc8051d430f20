// What a Program calls on the host: XLA FFI handlers (jaxlib's LAPACK, users' own) and Python callbacks.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "csrc/runtime/ffi_registry.h"
#include "csrc/runtime/program.h"

namespace pjrt_metal {

class HostCall {
 public:
  virtual ~HostCall() = default;
  // `arrays`: the addresses of the step's operands, then of its results; `user_data`: what the client gave this
  // execution's handlers, or null. Throws what the call's error is; lets no
  // exception of another kind through. Calls may overlap.
  virtual void Run(std::span<std::byte* const> arrays, const FfiUserData* user_data) const = 0;
  // The call may wait for other programs of this device, which therefore must not wait for it.
  virtual bool runs_programs() const { return false; }
};

// The call of a kHostCall step on the device with that number. Throws NotFound for a target that nobody registered,
// naming it.
std::unique_ptr<HostCall> NewHostCall(const Step& step, int device);

}  // namespace pjrt_metal
