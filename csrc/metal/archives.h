// Pipelines' machine code on disk: MTLBinaryArchive, one file a kernel.
#pragma once

#include <string>

#include "csrc/metal/objc.h"
#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/hash.h"

namespace pjrt_metal::metal {

// Archives are named by all that decides their content. Beside each stands the hash of its bytes, so that a damaged
// one is found out before Metal's loader and the GPU see it. Whatever the disk or Metal refuses is logged and costs
// only time. Thread-safe.
class Archives {
 public:
  // An empty path: nothing is kept.
  Archives(Id device, std::string folder) : device_(Ref::Retain(device)), folder_(std::move(folder)) {}

  // A sound archive of that name, or an empty reference.
  Ref Find(const Digest& key);
  // An archive with the machine code of the pipeline that `descriptor` describes; an empty reference if none can be had
  // or kept.
  Ref Make(Id descriptor);
  // Keeps what Make gave.
  void Add(const Digest& key, Id archive);

 private:
  Ref device_;
  CacheFolder folder_;
};

}  // namespace pjrt_metal::metal
