// Compiled kernels on disk: shared libraries named by their kernels' content.
//
// A library with several kernels has one name (a hard link) a kernel. After its image it holds the
// keys of its kernels and a hash of everything, so a damaged file is found out before the loader
// sees it. No entry is changed in place.
#pragma once

#include <map>
#include <span>
#include <string>

#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/hash.h"

namespace pjrt_metal::software {

class DiskCache {
 public:
  // The keys that the cache has, each with the path of a sound library that holds its kernel.
  std::map<Digest, std::string> Find(std::span<const Digest> keys);
  // Adds the library at `path` under all of its kernels' keys. What the disk refuses is logged.
  void Add(const std::string& path, std::span<const Digest> keys);

 private:
  CacheFolder folder_;
};

}  // namespace pjrt_metal::software
