#include "csrc/metal/gpu_errors.h"

#include <utility>

#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {

Error GpuError(const std::string& what, Id error) {
  static constexpr std::pair<int64_t, Code> kCodes[] = {
      {kErrorTimeout, Code::kDeadlineExceeded},
      {kErrorAccessRevoked, Code::kUnavailable},
      {kErrorOutOfMemory, Code::kResourceExhausted},
      {kErrorDeviceRemoved, Code::kUnavailable},
  };
  Code code = Code::kInternal;
  if (error != nullptr) {
    const int64_t given = Send<Message::kCode>(error);
    for (const auto& [metal, ours] : kCodes) {
      if (metal == given) code = ours;
    }
  }
  std::string text = ErrorText(error);
  // Of a GPU that also draws: it has no code of its own.
  if (text.find("Impacting Interactivity") != std::string::npos) {
    code = Code::kDeadlineExceeded;
    text += ": macOS needed the GPU for the display; make single operations smaller (a smaller batch)";
  }
  return Error(code, what + text);
}

GraphFaults& GraphFaults::Get() {
  static auto* const faults = new GraphFaults;  // never freed: handlers may run while the process exits
  return *faults;
}

uint64_t GraphFaults::Open() {
  const std::lock_guard lock(mutex_);
  open_.emplace(next_, std::nullopt);
  return next_++;
}

Ref GraphFaults::Descriptor(uint64_t number) {
  Ref descriptor = New(GraphClass::kMPSGraphExecutableExecutionDescriptor);
  SetGraphCompletionHandler(descriptor.get(), number, [](uint64_t of, Id error) {
    if (error != nullptr) GraphFaults::Get().Report(of, GpuError("MPSGraph could not run a library call: ", error));
  });
  return descriptor;
}

void GraphFaults::Report(uint64_t number, Error error) {
  LogPhase("library: failed", 0, error.what());
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(number);
  std::optional<Error>& place = found == open_.end() ? late_ : found->second;
  if (!place) place = std::move(error);
}

std::optional<Error> GraphFaults::Close(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto node = open_.extract(number);
  return node.empty() ? std::nullopt : std::move(node.mapped());
}

std::optional<Error> GraphFaults::TakeLate() {
  const std::lock_guard lock(mutex_);
  return std::exchange(late_, std::nullopt);
}

}  // namespace pjrt_metal::metal
