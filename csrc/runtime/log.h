// PJRT_METAL_LOG=1: one line a phase on stderr: "pjrt_metal: execute jit_f 0.12 ms (3 launches)".
#pragma once

#include <string>

namespace pjrt_metal {

bool LogEnabled();
// A line on stderr in any case: the user asked for something that cannot be had, and work goes on without it.
void Warn(const std::string& text);
void LogPhase(const char* phase, double milliseconds, const std::string& detail);

}  // namespace pjrt_metal
