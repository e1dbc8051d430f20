#include "csrc/metal/capture.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "csrc/runtime/error.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

std::atomic<bool> capturing = false;

Id Manager() { return Send<Message::kSharedCaptureManager>(Of(Class::kMTLCaptureManager)); }

Error Refused(const std::string& why) {
  return FailedPrecondition("PJRT_METAL_CAPTURE: Metal cannot record: " + why +
                            ". It records only for processes that are started with METAL_CAPTURE_ENABLED=1 "
                            "(MTL_CAPTURE_ENABLED=1 on newer systems), or by Xcode");
}

}  // namespace

void StartCapture(Id device, const std::string& path) {
  if (capturing) return;  // for another client: the recording has all queues of the device
  if (!path.ends_with(".gputrace")) {
    throw InvalidArgument("PJRT_METAL_CAPTURE=" + path + ": the name must end in .gputrace");
  }
  if (access(path.c_str(), F_OK) == 0) {
    throw InvalidArgument("PJRT_METAL_CAPTURE=" + path + " exists; Metal replaces no document: choose another name");
  }
  const Pool pool;
  const Id manager = Manager();
  if (!Send<Message::kSupportsDestination>(manager, kCaptureToDocument)) {
    throw Refused("it does not write documents here");
  }
  const Ref descriptor = New(Class::kMTLCaptureDescriptor);
  Send<Message::kSetCaptureObject>(descriptor.get(), device);
  Send<Message::kSetCaptureDestination>(descriptor.get(), kCaptureToDocument);
  Send<Message::kSetCaptureUrl>(descriptor.get(), FileUrl(path));
  Id error = nullptr;
  if (!Send<Message::kStartCapture>(manager, descriptor.get(), &error)) throw Refused(ErrorText(error));
  capturing = true;
  // A client may live until the process ends without a destructor.
  [[maybe_unused]] static const int registered = std::atexit(StopCapture);
  LogPhase("metal: capture", 0, path);
}

void StopCapture() {
  if (!capturing.exchange(false)) return;
  const Pool pool;
  Send<Message::kStopCapture>(Manager());
}

}  // namespace pjrt_metal::metal
