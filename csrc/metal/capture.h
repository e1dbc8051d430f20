// PJRT_METAL_CAPTURE: a recording of the GPU's work, for Xcode.
#pragma once

#include <string>

#include "csrc/metal/objc.h"

namespace pjrt_metal::metal {

// Records what the device does into a new document at `path` (*.gputrace) until StopCapture, or the process's end.
// Throws InvalidArgument for a path that cannot be, FailedPrecondition with Metal's reason and what helps.
void StartCapture(Id device, const std::string& path);
// Ends the recording that this process has begun, if any.
void StopCapture();

}  // namespace pjrt_metal::metal
