// Kernels that need what Metal lacks (double precision): compiled by the host's C++ compiler and run by the CPU on
// unified memory, between the GPU's commands.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "csrc/runtime/device.h"

namespace pjrt_metal::metal {

// Makes the device that such kernels run on: the software one.
using HostFactory = std::function<std::unique_ptr<Device>()>;

class HostPipeline : public Pipeline {
 public:
  HostPipeline(std::string name, std::shared_ptr<Device> device, PipelineRef pipeline)
      : name_(std::move(name)), device_(std::move(device)), pipeline_(std::move(pipeline)) {}
  // A step of `encoder`. Throws Internal for a binding outside its allocation.
  void Dispatch(Encoder& encoder, std::span<const Binding> buffers, std::span<const std::byte> args,
                const Grid& grid) const;

 private:
  std::string name_;
  std::shared_ptr<Device> device_;
  PipelineRef pipeline_;
};

class HostKernels {
 public:
  explicit HostKernels(HostFactory factory) : factory_(std::move(factory)) {}
  // No compiler is looked for before the first kernel comes. Throws FailedPrecondition, saying what to install, if
  // there is none.
  std::vector<PipelineRef> Compile(const std::string& preamble, std::span<const KernelSource> kernels);

 private:
  std::shared_ptr<Device> TheDevice();

  HostFactory factory_;
  std::mutex mutex_;
  std::shared_ptr<Device> device_;
};

}  // namespace pjrt_metal::metal
