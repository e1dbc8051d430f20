#include "csrc/metal/host_kernels.h"

namespace pjrt_metal::metal {

void HostPipeline::Dispatch(Encoder& encoder, std::span<const Binding> buffers, std::span<const std::byte> args,
                            const Grid& grid) const {
  for (const Binding& binding : buffers) {
    if (binding.allocation == nullptr) throw Internal(name_ + ": no allocation");
    const size_t size = binding.allocation->size();
    const size_t bytes = binding.bytes == SIZE_MAX ? 0 : binding.bytes;
    if (binding.offset > size || bytes > size - binding.offset) {
      throw Internal(name_ + ": offset " + std::to_string(binding.offset) + " and " + std::to_string(bytes) +
                     " bytes exceed an allocation of " + std::to_string(size) + " bytes");
    }
  }
  encoder.Host([device = device_, pipeline = pipeline_, grid, buffers = std::vector(buffers.begin(), buffers.end()),
                args = std::vector(args.begin(), args.end())] {
    const std::unique_ptr<Encoder> host = device->NewEncoder();
    host->Dispatch(*pipeline, buffers, args, grid);
    host->Commit(nullptr);
  });
}

std::vector<PipelineRef> HostKernels::Compile(const std::string& preamble, std::span<const KernelSource> kernels) {
  if (kernels.empty()) return {};
  if (!factory_) throw Unimplemented(kernels[0].name + ": needs double precision, and there is no device for that");
  const std::shared_ptr<Device> device = TheDevice();
  std::vector<PipelineRef> pipelines;
  try {
    pipelines = device->Compile(preamble, kernels);
  } catch (const Error& error) {
    if (error.code() != Code::kFailedPrecondition) throw;
    throw FailedPrecondition(
        "the program computes in double precision, which Metal lacks: such kernels are compiled for the CPU, and "
        "there is no compiler for them. Install Apple's command line tools: xcode-select --install\n" +
        std::string(error.what()));
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    pipelines[i] = std::make_shared<HostPipeline>(kernels[i].name, device, std::move(pipelines[i]));
  }
  return pipelines;
}

std::shared_ptr<Device> HostKernels::TheDevice() {
  const std::lock_guard lock(mutex_);
  if (device_ == nullptr) device_ = factory_();
  return device_;
}

}  // namespace pjrt_metal::metal
