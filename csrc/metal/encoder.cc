#include "csrc/metal/encoder.h"

#include <algorithm>

#include "csrc/metal/host_kernels.h"
#include "csrc/metal/memory.h"
#include "csrc/metal/mpsgraph.h"
#include "csrc/runtime/launch.h"

namespace pjrt_metal::metal {
namespace {

// What a thread of a copy moves, the most first; a vector of four words is what one load can be.
constexpr uint32_t kCopyWidths[] = {16, 4, 1};
// Threads of one launch of a copy: below 2^32, and a multiple of any threadgroup's size.
constexpr size_t kCopyThreads = size_t{1} << 30;

struct Range {
  BoundBuffer bound;
  Access access;
};

class MetalEncoder : public Encoder {
 public:
  MetalEncoder(std::shared_ptr<CommandQueue> queue, CopyKernels copy_kernels)
      : queue_(std::move(queue)), copy_kernels_(std::move(copy_kernels)) {}
  ~MetalEncoder() override;

  void Dispatch(const Pipeline& pipeline, std::span<const Binding> buffers, std::span<const std::byte> args,
                const Grid& grid) override;
  void Copy(Binding source, Binding destination, size_t bytes) override;
  void Call(const LibraryCall& call, std::span<const Binding> buffers) override;
  void Host(std::function<void()> work) override;
  void Sync() override;
  double SyncAndTime() override;
  void Commit(std::function<void(std::optional<Error>)> done) override;

 private:
  void Bind(const Range& range);
  void Record(const Command& command);
  void Encode();

  std::shared_ptr<CommandQueue> queue_;
  CopyKernels copy_kernels_;
  Recording recording_;  // what is not encoded yet
  SubmissionRef submission_ = std::make_shared<Submission>();
  bool encoded_ = false;  // some of the submission's commands may be running
};

// Throws if the binding's first `bytes` are not all in its allocation.
Range Resolve(const Binding& binding, size_t bytes, BufferParameter parameter, std::string_view user) {
  const auto* allocation = static_cast<const MetalAllocation*>(binding.allocation);
  if (allocation == nullptr) throw Internal(std::string(user) + ": no allocation");
  const size_t size = allocation->size();
  if (binding.offset > size || bytes > size - binding.offset) {
    throw Internal(std::string(user) + ": offset " + std::to_string(binding.offset) + " and " + std::to_string(bytes) +
                   " bytes exceed an allocation of " + std::to_string(size) + " bytes");
  }
  // An empty range may lie at the very end, which Metal does not allow to bind; nothing of it is
  // accessed.
  const uint64_t offset = binding.offset < size ? binding.offset : 0;
  const auto begin = reinterpret_cast<uintptr_t>(allocation->data()) + binding.offset;
  return {{allocation->buffer(), offset, parameter.index},
          {begin, begin + std::min(binding.bytes, size - binding.offset), parameter.writes}};
}

Size Threadgroup(const MetalPipeline& pipeline, const Grid& grid) {
  const auto& [x, y, z] = grid.per_threadgroup;
  if (x == 0 && y == 0 && z == 0) return ChooseThreadgroup(grid.threads, pipeline.max_threads);
  const uint32_t limit = pipeline.max_threads;
  // Each factor is bounded first, so that the product cannot overflow.
  if (x == 0 || y == 0 || z == 0 || x > limit || y > limit || z > limit || uint64_t{x} * y * z > limit) {
    throw Internal(pipeline.name + ": " + std::to_string(x) + "x" + std::to_string(y) + "x" + std::to_string(z) +
                   " threads in a threadgroup; its pipeline allows 1 to " + std::to_string(limit));
  }
  return {x, y, z};
}

// A submission given up by an exception: its caller frees memory that the GPU may still be using.
MetalEncoder::~MetalEncoder() {
  if (encoded_) queue_->EncodeSync({}, submission_);
}

void MetalEncoder::Bind(const Range& range) {
  recording_.buffers.push_back(range.bound);
  recording_.accesses.push_back(range.access);
  recording_.bytes += range.access.end - range.access.begin;
}

void MetalEncoder::Record(const Command& command) {
  recording_.commands.push_back(command);
  if (recording_.IsLong()) Encode();  // the GPU need not wait for the end of a long submission
}

void MetalEncoder::Encode() {
  encoded_ = true;
  queue_->Encode(recording_, submission_);
  recording_.Clear();
}

void MetalEncoder::Dispatch(const Pipeline& abstract_pipeline, std::span<const Binding> buffers,
                            std::span<const std::byte> args, const Grid& grid) {
  if (const auto* host = dynamic_cast<const HostPipeline*>(&abstract_pipeline)) {
    return host->Dispatch(*this, buffers, args, grid);
  }
  const auto& pipeline = static_cast<const MetalPipeline&>(abstract_pipeline);
  CheckLaunch(pipeline.name, pipeline.buffers.size(), pipeline.args_index >= 0, buffers.size(), args.size(), grid);
  const Size threads = {grid.threads[0], grid.threads[1], grid.threads[2]};
  const Size threadgroup = Threadgroup(pipeline, grid);
  if (!recording_.commands.empty() && !Joins(recording_.work, grid.work)) Encode();
  const Launch launch = {&pipeline,      recording_.buffers.size(),
                         buffers.size(), recording_.arguments.size(),
                         args.size(),    threads,
                         threadgroup,    grid.label};
  for (size_t i = 0; i < buffers.size(); ++i) {
    Bind(Resolve(buffers[i], 0, pipeline.buffers[i], pipeline.name));
  }
  recording_.arguments.insert(recording_.arguments.end(), args.begin(), args.end());
  recording_.work += grid.work;
  Record(launch);
}

// Kernels and not blits: these end the compute encoder, and command buffers of blits alone between ones of compute can
// hang Apple's blit channel (WebKit/WebKit#71563).
void MetalEncoder::Copy(Binding source, Binding destination, size_t bytes) {
  if (bytes == 0) return;
  const auto [from, read] = Resolve(source, bytes, {0, false}, "copy's source");
  const auto [to, written] = Resolve(destination, bytes, {1, true}, "copy's destination");
  if (from.buffer == to.buffer) {
    if (from.offset == to.offset) return;
    if (std::max(from.offset, to.offset) - std::min(from.offset, to.offset) < bytes) {
      throw Internal("copy: source and destination overlap");
    }
  }
  // The widest that both ends' alignment allows, and then what is left.
  const uint64_t misaligned = from.offset | to.offset;
  size_t done = 0;
  for (const uint32_t width : kCopyWidths) {
    if (misaligned % width != 0) continue;
    const size_t end = bytes - bytes % width;
    while (done < end) {
      const size_t chunk = std::min(kCopyThreads * width, end - done);
      const Binding ends[] = {{source.allocation, source.offset + done, chunk},
                              {destination.allocation, destination.offset + done, chunk}};
      const auto threads = static_cast<uint32_t>(chunk / width);
      Dispatch(*copy_kernels_(width), ends, {}, {{threads, 1, 1}, {0, 0, 0}, threads});
      done += chunk;
    }
  }
}

void MetalEncoder::Call(const LibraryCall& abstract_call, std::span<const Binding> buffers) {
  const auto& call = static_cast<const GraphCall&>(abstract_call);
  if (buffers.size() != 3) throw Internal(call.name + ": called with " + std::to_string(buffers.size()) + " buffers");
  const GraphLaunch launch = {&call, recording_.buffers.size()};
  for (uint32_t i = 0; i < 3; ++i) {
    Bind(Resolve(buffers[i], buffers[i].bytes, {i, i == 2}, call.name));
  }
  recording_.calls_graph = true;
  Record(launch);
}

void MetalEncoder::Host(std::function<void()> work) {
  encoded_ = true;
  queue_->EncodeHost(recording_, submission_, std::move(work));
  recording_.Clear();
}

void MetalEncoder::Sync() {
  const auto error = queue_->EncodeSync(recording_, submission_);
  recording_.Clear();
  encoded_ = false;
  if (error) {
    submission_ = std::make_shared<Submission>();
    throw *error;
  }
}

double MetalEncoder::SyncAndTime() {
  const double before = submission_->gpu_seconds;
  Sync();
  return submission_->gpu_seconds - before;
}

void MetalEncoder::Commit(std::function<void(std::optional<Error>)> done) {
  queue_->EncodeEnd(recording_, std::exchange(submission_, std::make_shared<Submission>()), std::move(done));
  recording_.Clear();
  encoded_ = false;
}

}  // namespace

Size ChooseThreadgroup(const uint32_t (&threads)[3], uint32_t max_threads) {
  uint32_t left = std::min(max_threads, 256u);
  uint32_t chosen[3];
  for (int axis = 0; axis < 3; ++axis) {
    chosen[axis] = std::min(threads[axis], left);
    left /= chosen[axis];
  }
  return {chosen[0], chosen[1], chosen[2]};
}

std::unique_ptr<Encoder> NewMetalEncoder(std::shared_ptr<CommandQueue> queue, CopyKernels copy_kernels) {
  return std::make_unique<MetalEncoder>(std::move(queue), std::move(copy_kernels));
}

}  // namespace pjrt_metal::metal
