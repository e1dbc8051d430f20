// Library calls that were never made on this chip and system are made in a child process first: MPSGraph asserts, and
// an assertion ends the process.
#pragma once

#include <span>
#include <string>

#include "csrc/runtime/library_op.h"

namespace pjrt_metal {

// The command that makes a child which calls RunTrials with the path that it gets as its last argument: its words, one
// a line. Empty: there is none, and nothing is tried.
void SetTrialCommand(std::string command);

struct Trial {
  const LibraryOp* op;
  bool whole;  // as for Device::PrepareLibraryCall
};
struct TrialOutcome {
  size_t survived = 0;    // so many, from the first on, may be called
  std::string condemned;  // what ended the child, if the library did; then it is to be called no more
};
// Makes each call in a child, on arrays of its own. A child that was killed, or could not be made, condemns nothing;
// that is logged.
TrialOutcome TryInChild(std::span<const Trial> trials);

// In the child: makes the calls that the file lists, and says so on standard output. Returns the exit status.
int RunTrials(const char* path);

}  // namespace pjrt_metal
