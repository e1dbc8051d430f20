// Library calls on a Metal device: contractions as MPSGraph executables, encoded into our command buffers, on our
// buffers.
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>

#include "csrc/metal/objc.h"
#include "csrc/metal/recording.h"
#include "csrc/runtime/device.h"

namespace pjrt_metal::metal {

// An executable is compiled for one description. Immutable, so that any thread may encode it.
struct GraphCall : LibraryCall {
  std::string name;  // for errors
  uint32_t dtype = 0;
  Ref executable;
  Ref shapes[3];             // of lhs, rhs, result: arrays of numbers
  size_t feeds[2] = {0, 1};  // which of lhs and rhs are the executable's inputs, in its order
};

// What a device can have of MPSGraph.
class GraphLibrary {
 public:
  // `macos`: of this machine. MPSGraph is not loaded before the first Prepare.
  GraphLibrary(Id device, const OsVersion& macos) : device_(Ref::Retain(device)), macos_(macos) {}
  // As Device::PrepareLibraryCall.
  LibraryCallRef Prepare(const LibraryOp& op, bool whole);

 private:
  Ref device_;
  OsVersion macos_;
  std::mutex mutex_;
  std::map<std::string, LibraryCallRef> calls_;  // by description
};

// Encodes the call on lhs, rhs and result into a command buffer without an open encoder. MPSGraph may commit it on the
// way and go on in another one of the same queue: returns the one that is to be used from here on, whichever it is.
// Its errors are reported as `number` (gpu_errors.h).
Ref EncodeGraph(const GraphCall& call, Id command_buffer, std::span<const BoundBuffer, 3> buffers, uint64_t number);

}  // namespace pjrt_metal::metal
