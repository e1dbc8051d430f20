// Children of a process that used the library. The threads that run programs are not in them, and what those held
// locked stays locked: a child may read what was ready before, and is told so when it asks for more.
#pragma once

#include "csrc/runtime/error.h"

namespace pjrt_metal {

// From now on a child of this process is known as one.
void NoteForks();
bool IsForked();
// What a child is told: a FailedPrecondition.
Error ForkedError();
// Throws it in a child.
void RefuseIfForked();

}  // namespace pjrt_metal
