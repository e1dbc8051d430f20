#include "csrc/metal/command_buffer.h"

#include <algorithm>
#include <span>

#include "csrc/metal/gpu_errors.h"
#include "csrc/metal/mpsgraph.h"

namespace pjrt_metal::metal {
namespace {

// Kernels named in one error.
constexpr size_t kMaxNamed = 8;

std::string Names(const std::vector<std::string>& kernels) {
  std::string text = kernels.size() == 1 ? "kernel " : "kernels ";
  for (size_t i = 0; i < std::min(kernels.size(), kMaxNamed); ++i) text += (i == 0 ? "" : ", ") + kernels[i];
  if (kernels.size() > kMaxNamed) text += " and " + std::to_string(kernels.size() - kMaxNamed) + " more";
  return text;
}

}  // namespace

// The open encoder. Its launches may overlap, between barriers; Metal orders encoders by the resources that it tracks.
Id CommandBuffer::Encoder() {
  if (encoder_) return encoder_.get();
  encoder_ = Ref::Retain(Send<Message::kComputeCommandEncoder>(command_buffer_.get(), kDispatchTypeConcurrent));
  if (!encoder_) throw Error(Code::kUnavailable, "Metal gave no command encoder");
  passes_.push_back({"pjrt_metal " + std::to_string(passes_.size()), {}});
  Send<Message::kSetLabel>(encoder_.get(), String(passes_.back().label).get());
  return encoder_.get();
}

// Metal aborts if an encoder dies before endEncoding.
CommandBuffer::~CommandBuffer() {
  EndEncoder();
  if (graph_number_ != 0) GraphFaults::Get().Close(graph_number_);
}

void CommandBuffer::EndEncoder() {
  if (!encoder_) return;
  Send<Message::kEndEncoding>(encoder_.get());
  encoder_ = Ref();
  state_ = nullptr;
  hazards_.Clear();
  std::ranges::fill(bound_, BoundBuffer{});
}

void CommandBuffer::Encode(const Recording& recording) {
  const Pool pool;
  bytes_ += recording.bytes;
  work_ += recording.work;
  for (const auto& command : recording.commands) {
    std::visit([&](const auto& one) { Encode(one, recording); }, command);
    ++commands_;
  }
}

void CommandBuffer::Encode(const Launch& launch, const Recording& recording) {
  const MetalPipeline& pipeline = *launch.pipeline;
  const Id encoder = Encoder();
  const auto accesses = std::span(recording.accesses).subspan(launch.first_buffer, launch.buffers);
  if (hazards_.Conflict(accesses)) {
    Send<Message::kMemoryBarrier>(encoder, kBarrierScopeBuffers);
    hazards_.Clear();
  }
  hazards_.Add(accesses);
  if (state_ != pipeline.state.get()) {
    state_ = pipeline.state.get();
    Send<Message::kSetComputePipelineState>(encoder, state_);
    passes_.back().kernels.push_back(Named(pipeline.name, launch.label));
  }
  for (const BoundBuffer& bound : std::span(recording.buffers).subspan(launch.first_buffer, launch.buffers)) {
    BoundBuffer& before = bound_[bound.index];
    if (before.buffer != bound.buffer) {
      Send<Message::kSetBuffer>(encoder, bound.buffer, bound.offset, bound.index);
    } else if (before.offset != bound.offset) {
      Send<Message::kSetBufferOffset>(encoder, bound.offset, bound.index);
    }
    before = bound;
  }
  if (launch.argument_bytes > 0) {
    Send<Message::kSetBytes>(encoder, recording.arguments.data() + launch.first_argument_byte, launch.argument_bytes,
                             pipeline.args_index);
    bound_[pipeline.args_index] = {};
  }
  Send<Message::kDispatchThreads>(encoder, launch.threads, launch.threadgroup);
}

void CommandBuffer::Encode(const GraphLaunch& launch, const Recording& recording) {
  EndEncoder();
  const auto buffers = std::span(recording.buffers).subspan(launch.first_buffer).first<3>();
  passes_.push_back({"", {launch.call->name}});
  Watch();  // before MPSGraph may commit it: nobody could be told of its completion any more
  if (graph_number_ == 0) graph_number_ = GraphFaults::Get().Open();
  Ref next = EncodeGraph(*launch.call, command_buffer_.get(), buffers, graph_number_);
  if (next.get() == command_buffer_.get()) return;
  committed_.push_back(std::exchange(command_buffer_, std::move(next)));
  watched_ = false;
}

void CommandBuffer::Watch() {
  if (std::exchange(watched_, true)) return;
  ++completion_->left;
  AddCompletedHandler(command_buffer_.get(), [completion = completion_](Id) {
    if (--completion->left == 0) completion->handler();
  });
}

void CommandBuffer::Commit(std::function<void()> handler) {
  const Pool pool;
  EndEncoder();
  completion_->handler = std::move(handler);
  Watch();
  --completion_->left;  // not the last: this one is still to complete
  Send<Message::kCommit>(command_buffer_.get());
}

std::optional<Error> CommandBuffer::Failure() {
  auto told = GraphFaults::Get().Close(std::exchange(graph_number_, 0));
  for (const Ref& earlier : committed_) {
    if (auto error = Failure(earlier.get())) return error;
  }
  if (auto error = Failure(command_buffer_.get())) return error;
  return told ? told : GraphFaults::Get().TakeLate();
}

std::optional<Error> CommandBuffer::Failure(Id buffer) const {
  if (Send<Message::kStatus>(buffer) != kStatusError) return std::nullopt;
  const Pool pool;
  const Id error = Send<Message::kError>(buffer);
  const Error failure = GpuError("Metal could not run a submission: ", error);
  return Error(failure.code(), failure.what() + Blamed(error));
}

// The encoders that the error calls faulted or affected, by the labels that they were given; all
// if it names none.
std::string CommandBuffer::Blamed(Id error) const {
  const Id details = error == nullptr ? nullptr : Send<Message::kUserInfo>(error);
  const Id infos = details == nullptr ? nullptr : Send<Message::kObjectForKey>(details, *GetRuntime().encoder_info_key);
  std::string text;
  const uint64_t count = infos == nullptr ? 0 : Send<Message::kCount>(infos);
  for (uint64_t i = 0; i < count; ++i) {
    const Id info = Send<Message::kObjectAtIndex>(infos, i);
    const int64_t state = Send<Message::kErrorState>(info);
    if (state != kEncoderFaulted && state != kEncoderAffected) continue;
    const std::string label = Text(Send<Message::kLabel>(info));
    for (const Pass& pass : passes_) {
      if (pass.label != label) continue;
      text += std::string("; ") + (state == kEncoderFaulted ? "fault in " : "affected: ") + Names(pass.kernels);
    }
  }
  if (!text.empty()) return text;
  std::vector<std::string> kernels;
  for (const Pass& pass : passes_) kernels.insert(kernels.end(), pass.kernels.begin(), pass.kernels.end());
  return "; it held " + Names(kernels);
}

std::pair<double, double> CommandBuffer::Times() const {
  const Ref& first = committed_.empty() ? command_buffer_ : committed_.front();
  return {Send<Message::kGpuStartTime>(first.get()), Send<Message::kGpuEndTime>(command_buffer_.get())};
}

}  // namespace pjrt_metal::metal
