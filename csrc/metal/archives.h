// Pipelines' machine code on disk: MTLBinaryArchive, one file a kernel.
#pragma once

#include <mutex>
#include <string>

#include "csrc/metal/objc.h"
#include "csrc/runtime/hash.h"

namespace pjrt_metal::metal {

// Archives are named by all that decides their content. Beside each stands the hash of its bytes, so that a damaged
// one is found out before Metal's loader and the GPU see it. Both files appear complete, by renaming, so any number of
// processes may share the folder; nothing is ever deleted, and a user may delete any of it at any time. Whatever the
// disk or Metal refuses is logged and costs only time. Thread-safe.
class Archives {
 public:
  // No folder is touched before the first Find. An empty path: nothing is kept.
  Archives(Id device, std::string folder) : device_(Ref::Retain(device)), folder_(std::move(folder)) {}

  // A sound archive of that name, or an empty reference.
  Ref Find(const Digest& key);
  // Keeps the machine code of the pipeline that `descriptor` describes.
  void Add(const Digest& key, Id descriptor);

 private:
  bool Open();

  Ref device_;
  std::string folder_;
  std::mutex mutex_;
  bool opened_ = false;
};

}  // namespace pjrt_metal::metal
