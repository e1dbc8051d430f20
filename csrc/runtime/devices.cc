// Which devices this machine has: the one place that knows both implementations.
#include "csrc/metal/metal_device.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/environment.h"
#include "csrc/software/software_device.h"
#include "csrc/software/strict_device.h"

namespace pjrt_metal {

std::vector<std::unique_ptr<Device>> DiscoverDevices() {
  const std::string choice = environment::DeviceChoice();
  if (!choice.empty() && choice != "gpu" && choice != "software") {
    throw InvalidArgument("PJRT_METAL_DEVICE=" + choice + ": expected gpu or software");
  }
  environment::LibraryChoice();  // a value that is none is an error now, not when a program needs it
  std::vector<std::unique_ptr<Device>> devices;
  if (const std::string family = environment::Strict(); !family.empty()) {
    if (choice == "gpu")
      throw InvalidArgument("PJRT_METAL_STRICT is for the software device, not PJRT_METAL_DEVICE=gpu");
    devices.push_back(software::CreateStrict(family));
    return devices;
  }
  std::vector<std::string> refused;
  if (choice != "software") devices = metal::Discover(&refused, software::Create);
  if (devices.empty()) {
    if (choice == "gpu") {
      std::string why;
      for (const std::string& reason : refused) why += (why.empty() ? "" : "; ") + reason;
      throw FailedPrecondition("PJRT_METAL_DEVICE=gpu, but this machine has no GPU that Metal can use (" + why +
                               "): unset it, or use software");
    }
    if (const std::string capture = environment::Capture(); !capture.empty()) {
      throw FailedPrecondition("PJRT_METAL_CAPTURE=" + capture + " records a GPU's work, and there is no GPU here");
    }
    devices.push_back(software::Create());
  }
  return devices;
}

}  // namespace pjrt_metal
