// Apple GPUs as Devices (csrc/runtime/device.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "csrc/metal/host_kernels.h"
#include "csrc/runtime/device.h"

namespace pjrt_metal::metal {

// The Apple GPUs of this machine (family 7, the M1, and later), none where there is no Metal. Never
// throws for what a machine lacks: `refused`, if given, gets a line on each thing that stood in the
// way. Throws if PJRT_METAL_CAPTURE cannot be done.
// `host`: makes the device for kernels that Metal cannot run.
std::vector<std::unique_ptr<Device>> Discover(std::vector<std::string>* refused = nullptr,
                                              const HostFactory& host = nullptr);

}  // namespace pjrt_metal::metal
