#include "csrc/metal/encoder.h"

#include <algorithm>

#include "csrc/metal/mpsgraph.h"

namespace pjrt_metal::metal {
namespace {

// Metal's limit for setBytes; more goes into a buffer of its own.
constexpr size_t kMaxInlineBytes = 4096;
// On macOS a blit's offsets and size must be multiples of this.
constexpr size_t kBlitAlignment = 4;
// Threads of one launch of the byte copy: below 2^32, and a multiple of any threadgroup's size.
constexpr size_t kCopyChunk = size_t{1} << 30;

class MetalEncoder : public Encoder {
 public:
  explicit MetalEncoder(std::shared_ptr<CommandQueue> queue) : queue_(std::move(queue)) {}
  // A submission given up by an exception: Metal aborts if an encoder dies before endEncoding.
  // One that is watched must complete some time.
  ~MetalEncoder() override {
    EndEncoder();
    if (!watched_) return;
    queue_->Commit(command_buffer_, true, nullptr);
    queue_->Wait();
  }

  void Dispatch(const Pipeline& pipeline, std::span<const Binding> buffers, std::span<const std::byte> args,
                const Grid& grid) override;
  void Copy(Binding source, Binding destination, size_t bytes) override;
  void Host(std::function<void()> work) override;
  void Call(const LibraryCall& call, std::span<const Binding> buffers) override;
  void Sync() override;
  double SyncAndTime() override;
  void Commit(std::function<void(std::optional<Error>)> done) override;

 private:
  enum class Kind { kNone, kCompute, kBlit };
  Id Encode(Kind kind);
  void EndEncoder();
  Ref EndCommandBuffer();
  std::vector<Ref> Finish();

  std::shared_ptr<CommandQueue> queue_;
  Ref command_buffer_;          // made by the first command: a queue has only 64 that have not completed
  bool watched_ = false;        // its completion handler is there
  std::vector<Ref> committed_;  // those before it that MPSGraph committed
  Ref encoder_;                 // open if kind_ is not kNone
  Kind kind_ = Kind::kNone;
  Id state_ = nullptr;  // the pipeline state set in the open compute encoder
};

struct Range {
  Id buffer;
  uint64_t offset;
};

Range Resolve(const Binding& binding, size_t bytes, std::string_view user) {
  const auto* allocation = static_cast<const MetalAllocation*>(binding.allocation);
  if (allocation == nullptr) throw Internal(std::string(user) + ": no allocation");
  const size_t size = allocation->size();
  if (binding.offset > size || bytes > size - binding.offset) {
    throw Internal(std::string(user) + ": offset " + std::to_string(binding.offset) + " and " + std::to_string(bytes) +
                   " bytes exceed an allocation of " + std::to_string(size) + " bytes");
  }
  // An empty range may lie at the very end, which Metal does not allow to bind; nothing of it is
  // accessed.
  return {allocation->buffer(), binding.offset < size ? binding.offset : 0};
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

// Ends the open encoder if it is of another kind, and returns one of this kind.
Id MetalEncoder::Encode(Kind kind) {
  if (kind_ == kind) return encoder_.get();
  EndEncoder();
  const Pool pool;
  if (!command_buffer_) command_buffer_ = queue_->NewCommandBuffer();
  const Id buffer = command_buffer_.get();
  // Serial: a dispatch sees the effects of the ones before it, with no barriers of ours.
  encoder_ = Ref::Retain(kind == Kind::kCompute ? Send<Message::kComputeCommandEncoder>(buffer, kDispatchTypeSerial)
                                                : Send<Message::kBlitCommandEncoder>(buffer));
  if (!encoder_) throw Error(Code::kUnavailable, "Metal gave no command encoder");
  kind_ = kind;
  return encoder_.get();
}

void MetalEncoder::EndEncoder() {
  if (kind_ == Kind::kNone) return;
  Send<Message::kEndEncoding>(encoder_.get());
  encoder_ = Ref();
  kind_ = Kind::kNone;
  state_ = nullptr;
}

Ref MetalEncoder::EndCommandBuffer() {
  EndEncoder();
  if (!command_buffer_) command_buffer_ = queue_->NewCommandBuffer();
  return std::exchange(command_buffer_, Ref());
}

void MetalEncoder::Dispatch(const Pipeline& abstract_pipeline, std::span<const Binding> buffers,
                            std::span<const std::byte> args, const Grid& grid) {
  const auto& pipeline = static_cast<const MetalPipeline&>(abstract_pipeline);
  if (buffers.size() != pipeline.buffer_indices.size() || args.empty() != (pipeline.args_index < 0)) {
    throw Internal(pipeline.name + ": launched with " + std::to_string(buffers.size()) + " buffers and " +
                   std::to_string(args.size()) + " bytes of arguments; it takes " +
                   std::to_string(pipeline.buffer_indices.size()) + " buffers and " +
                   (pipeline.args_index < 0 ? "no" : "some") + " arguments");
  }
  const Size threads = {grid.threads[0], grid.threads[1], grid.threads[2]};
  if (threads.width == 0 || threads.height == 0 || threads.depth == 0) {
    throw Internal(pipeline.name + ": launched with an empty grid");
  }
  const Size threadgroup = Threadgroup(pipeline, grid);

  const Id encoder = Encode(Kind::kCompute);
  if (state_ != pipeline.state.get()) {
    state_ = pipeline.state.get();
    Send<Message::kSetComputePipelineState>(encoder, state_);
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Range range = Resolve(buffers[i], 0, pipeline.name);
    Send<Message::kSetBuffer>(encoder, range.buffer, range.offset, pipeline.buffer_indices[i]);
  }
  if (args.size() > kMaxInlineBytes) {
    // The command buffer retains it until it has completed.
    const Ref copy =
        Ref::Adopt(Send<Message::kNewBufferWithBytes>(queue_->device(), args.data(), args.size(), kStorageModeShared));
    if (!copy) throw ResourceExhausted(pipeline.name + ": no memory for its arguments");
    Send<Message::kSetBuffer>(encoder, copy.get(), 0, pipeline.args_index);
  } else if (!args.empty()) {
    Send<Message::kSetBytes>(encoder, args.data(), args.size(), pipeline.args_index);
  }
  Send<Message::kDispatchThreads>(encoder, threads, threadgroup);
}

void MetalEncoder::Copy(Binding source, Binding destination, size_t bytes) {
  if (bytes == 0) return;
  const Range from = Resolve(source, bytes, "copy's source");
  const Range to = Resolve(destination, bytes, "copy's destination");
  if (from.buffer == to.buffer) {
    if (from.offset == to.offset) return;
    if (std::max(from.offset, to.offset) - std::min(from.offset, to.offset) < bytes) {
      throw Internal("copy: source and destination overlap");
    }
  }
  if ((from.offset | to.offset | bytes) % kBlitAlignment == 0) {
    Send<Message::kCopyFromBuffer>(Encode(Kind::kBlit), from.buffer, from.offset, to.buffer, to.offset, bytes);
    return;
  }
  const auto copy_bytes = queue_->copy_bytes();
  for (size_t done = 0; done < bytes; done += kCopyChunk) {
    const Binding ends[] = {{source.allocation, source.offset + done},
                            {destination.allocation, destination.offset + done}};
    Dispatch(*copy_bytes, ends, {}, {{static_cast<uint32_t>(std::min(kCopyChunk, bytes - done)), 1, 1}, {0, 0, 0}});
  }
}

void MetalEncoder::Call(const LibraryCall& abstract_call, std::span<const Binding> buffers) {
  const auto& call = static_cast<const GraphCall&>(abstract_call);
  if (buffers.size() != 3) throw Internal(call.name + ": called with " + std::to_string(buffers.size()) + " buffers");
  GraphBuffer resolved[3];
  for (size_t i = 0; i < 3; ++i) {
    const Range range = Resolve(buffers[i], buffers[i].bytes, call.name);
    resolved[i] = {range.buffer, range.offset};
  }
  EndEncoder();
  if (!command_buffer_) command_buffer_ = queue_->NewCommandBuffer();
  // Before MPSGraph may commit it: nobody could be told of its completion any more.
  if (!watched_) queue_->Watch(command_buffer_);
  watched_ = true;
  Ref next = EncodeGraph(call, command_buffer_.get(), resolved);
  if (next.get() == command_buffer_.get()) return;
  queue_->Adopt(command_buffer_, next);
  committed_.push_back(std::exchange(command_buffer_, std::move(next)));
}

void MetalEncoder::Host(std::function<void()> work) {
  Sync();
  work();
}

// Waits, and returns all command buffers since the last time, of which none failed.
std::vector<Ref> MetalEncoder::Finish() {
  const Ref last = EndCommandBuffer();
  queue_->Commit(last, std::exchange(watched_, false), nullptr);
  queue_->Wait();
  std::vector<Ref> finished = std::exchange(committed_, {});
  finished.push_back(last);
  for (const Ref& command_buffer : finished) {
    if (auto error = CommandBufferError(command_buffer.get())) throw *error;
  }
  return finished;
}

void MetalEncoder::Sync() { Finish(); }

// From the first command buffer's start to the last one's end: what MPSGraph may have put between them counts.
double MetalEncoder::SyncAndTime() {
  const std::vector<Ref> finished = Finish();
  return Send<Message::kGpuEndTime>(finished.back().get()) - Send<Message::kGpuStartTime>(finished.front().get());
}

void MetalEncoder::Commit(std::function<void(std::optional<Error>)> done) {
  // Even when nothing was encoded: `done` then still comes after the submissions before this one.
  Ref command_buffer;
  try {
    command_buffer = EndCommandBuffer();
  } catch (const Error& error) {
    if (done) done(error);
    return;
  }
  if (done && !committed_.empty()) {
    done = [earlier = std::exchange(committed_, {}), done = std::move(done)](std::optional<Error> error) {
      for (const Ref& one : earlier) {
        if (!error) error = CommandBufferError(one.get());
      }
      done(std::move(error));
    };
  }
  committed_.clear();
  queue_->Commit(command_buffer, std::exchange(watched_, false), std::move(done));
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

std::optional<Error> CommandBufferError(Id command_buffer) {
  if (Send<Message::kStatus>(command_buffer) != kStatusError) return std::nullopt;
  static constexpr std::pair<int64_t, Code> kCodes[] = {
      {kErrorTimeout, Code::kDeadlineExceeded},
      {kErrorAccessRevoked, Code::kUnavailable},
      {kErrorOutOfMemory, Code::kResourceExhausted},
      {kErrorDeviceRemoved, Code::kUnavailable},
  };
  const Pool pool;
  const Id error = Send<Message::kError>(command_buffer);
  Code code = Code::kInternal;
  if (error != nullptr) {
    const int64_t given = Send<Message::kCode>(error);
    for (const auto& [metal, ours] : kCodes) {
      if (metal == given) code = ours;
    }
  }
  return Error(code, "Metal could not run a submission: " + ErrorText(error));
}

Ref CommandQueue::NewCommandBuffer() const {
  const Pool pool;
  Ref command_buffer = Ref::Retain(Send<Message::kCommandBuffer>(queue_.get()));
  if (!command_buffer) throw Error(Code::kUnavailable, "Metal gave no command buffer");
  return command_buffer;
}

// The queue lives until its last command buffer has completed.
void CommandQueue::Watch(const Ref& command_buffer) {
  AddCompletedHandler(command_buffer.get(), [self = shared_from_this()](Id completed) { self->Completed(completed); });
}

void CommandQueue::Commit(const Ref& command_buffer, bool watched, Done done) {
  if (!watched) Watch(command_buffer);
  // Under the lock, so that the order here is Metal's. Handlers run on Metal's threads, never
  // inside commit.
  const std::lock_guard lock(mutex_);
  in_flight_.push_back({command_buffer, std::move(done), false, std::nullopt});
  Send<Message::kCommit>(command_buffer.get());
}

void CommandQueue::Adopt(const Ref& committed, const Ref& next) {
  Watch(next);
  {
    const std::lock_guard lock(mutex_);
    in_flight_.push_back({committed, nullptr, std::erase(early_, committed.get()) > 0, std::nullopt});
  }
  FinishCompleted();
}

void CommandQueue::Completed(Id command_buffer) {
  {
    const std::lock_guard lock(mutex_);
    const auto entry =
        std::ranges::find(in_flight_, command_buffer, [](const InFlight& e) { return e.command_buffer.get(); });
    if (entry == in_flight_.end()) {
      early_.push_back(command_buffer);
    } else {
      entry->completed = true;
      entry->error = CommandBufferError(command_buffer);
    }
  }
  FinishCompleted();
}

void CommandQueue::FinishCompleted() {
  std::vector<InFlight> finished;
  {
    const std::lock_guard lock(mutex_);
    while (!in_flight_.empty() && in_flight_.front().completed) {
      finished.push_back(std::move(in_flight_.front()));
      in_flight_.pop_front();
    }
  }
  for (InFlight& entry : finished) {
    if (entry.done) entry.done(std::move(entry.error));
  }
}

void CommandQueue::Wait() const {
  std::vector<Ref> waiting;
  {
    const std::lock_guard lock(mutex_);
    for (const InFlight& entry : in_flight_) waiting.push_back(entry.command_buffer);
  }
  for (const Ref& command_buffer : waiting) {
    Send<Message::kWaitUntilCompleted>(command_buffer.get());
  }
}

std::unique_ptr<Encoder> NewMetalEncoder(std::shared_ptr<CommandQueue> queue) {
  return std::make_unique<MetalEncoder>(std::move(queue));
}

}  // namespace pjrt_metal::metal
