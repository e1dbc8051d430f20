// Launches that may run at the same time, because no barrier is between them: a phase of a concurrent
// encoder. Only the GPU's thread comes here.
#pragma once

#include <string>
#include <vector>

#include "csrc/software/strict_memory.h"

namespace pjrt_metal::fake {

// What is wrong with a launch in this phase that accessed this; nothing if it may overlap the others.
std::string AddToPhase(const std::string& kernel, std::vector<software::Touched> touched);
void NewPhase();

}  // namespace pjrt_metal::fake
