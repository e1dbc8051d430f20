// A submission's commands before they are encoded, checked and resolved. Encoding waits until the
// submission is complete (or long): only then may its commands share a command buffer with
// others', and a submission that is given up leaves nothing behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "csrc/metal/hazards.h"
#include "csrc/metal/pipelines.h"

namespace pjrt_metal::metal {

struct GraphCall;  // mpsgraph.h

struct BoundBuffer {
  Id buffer;
  uint64_t offset;
  uint32_t index;  // [[buffer(i)]]
};

// `first_...` and counts: which entries of the recording's vectors are this launch's.
struct Launch {
  const MetalPipeline* pipeline;
  size_t first_buffer, buffers;
  size_t first_argument_byte, argument_bytes;
  Size threads, threadgroup;
  const Label* label;
};

// The recording's three buffers from `first_buffer` are lhs, rhs, result.
struct GraphLaunch {
  const GraphCall* call;
  size_t first_buffer;
};

using Command = std::variant<Launch, GraphLaunch>;

// When a recording, or a command buffer, is long enough to be handed on. A command buffer costs some tens of
// microseconds beyond its commands: below a microsecond each at this number, which still gives a GPU that is busy with
// launches of 5 us something to do soon. macOS ends command buffers that keep the GPU from the display for seconds; at
// this many bytes, square f32 matrices of 4600 x 4600, an M1 multiplies for a tenth of a second.
constexpr size_t kLongCommands = 64;
constexpr uint64_t kLongBytes = uint64_t{256} << 20;
// Innermost iterations, as the compiler counts them. What it makes in parts of this much (LAUNCH in
// mlir_lowering/work.py) must not come together again: a command buffer has at most this, or one launch.
constexpr uint64_t kLongWork = 10'000'000'000;

// Whether `more` can join `work`, which is below kLongWork.
inline bool Joins(uint64_t work, uint64_t more) { return more <= kLongWork - work; }

struct Recording {
  std::vector<Command> commands;
  std::vector<BoundBuffer> buffers;
  std::vector<Access> accesses;  // one a bound buffer
  std::vector<std::byte> arguments;
  uint64_t bytes = 0;        // that its commands access
  uint64_t work = 0;         // of its launches
  bool calls_graph = false;  // MPSGraph may commit what it is encoded into

  bool IsLong() const { return commands.size() >= kLongCommands || bytes >= kLongBytes || work >= kLongWork; }
  void Clear() {
    bytes = 0;
    work = 0;
    calls_graph = false;
    commands.clear();
    buffers.clear();
    accesses.clear();
    arguments.clear();
  }
};

}  // namespace pjrt_metal::metal
