#include "csrc/runtime/forked.h"

#include <pthread.h>

#include <atomic>

namespace pjrt_metal {
namespace {

std::atomic<bool> forked = false;

}  // namespace

void NoteForks() {
  static const int status = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  (void)status;  // without memory for a handler, children go on unwarned
}

bool IsForked() { return forked.load(std::memory_order_relaxed); }

Error ForkedError() {
  return FailedPrecondition(
      "this process is a fork of one that used metal, whose threads it does not have: start processes with "
      "multiprocessing's \"spawn\" or \"forkserver\", or fork before the first use");
}

void RefuseIfForked() {
  if (IsForked()) throw ForkedError();
}

}  // namespace pjrt_metal
