// What errors of command buffers become, and those that MPSGraph alone is told of.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "csrc/metal/objc.h"
#include "csrc/runtime/error.h"

namespace pjrt_metal::metal {

// `what` failed with an NSError (or nil) of a command buffer's.
Error GpuError(const std::string& what, Id error);

// MPSGraph may commit our command buffer, and make and commit others, of which we learn nothing. What is documented to
// tell of them is the completion handler of a call's execution descriptor, which gets an NSError. It is not waited for,
// since nothing says that it is always called: an error that comes after its command buffer's completion is the next
// one's. Thread-safe; one a process, as handlers may come at any time.
class GraphFaults {
 public:
  static GraphFaults& Get();
  // A command buffer whose calls are to be told apart from others'.
  uint64_t Open();
  // An execution descriptor whose call reports as `number`.
  Ref Descriptor(uint64_t number);
  void Report(uint64_t number, Error error);
  // The first error that was reported as `number`, to which nobody listens any more.
  std::optional<Error> Close(uint64_t number);
  // One that came too late for its own command buffer.
  std::optional<Error> TakeLate();

 private:
  std::mutex mutex_;
  uint64_t next_ = 1;
  std::map<uint64_t, std::optional<Error>> open_;
  std::optional<Error> late_;
};

}  // namespace pjrt_metal::metal
