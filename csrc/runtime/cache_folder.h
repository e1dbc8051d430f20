// The folder in which devices keep what they compiled, and the library choice what it measured.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace pjrt_metal {

// PJRT_METAL_CACHE_DIR, or the user's cache folder; empty if there is none.
std::string CacheFolderPath();

// Files in it appear complete, by renaming, so any number of processes may share it, and anybody may delete any of it
// at any time: who finds nothing compiles again. What was used least recently is deleted when the files take more than
// the bound, PJRT_METAL_CACHE_MB. Thread-safe.
class CacheFolder {
 public:
  // Empty: nothing is kept. Nothing is touched before Open. Throws InvalidArgument for a bound that is no number.
  explicit CacheFolder(std::string path = CacheFolderPath());
  // The path; on the first call the folder, and what it is in, is made for this user alone unless it is there. Empty if
  // it cannot be trusted or used, which is logged; said aloud if the user asked for it.
  std::string Open();
  // Notes that a file was used now.
  static void Used(const std::string& file);
  // Notes that `bytes` were added. Now and then (not each time: a folder of n files takes n calls of the system) this
  // deletes files, until nine tenths of the bound are left.
  void Added(uint64_t bytes);

 private:
  const uint64_t bound_;
  std::mutex mutex_;
  uint64_t added_ = 0;  // since the folder was last looked through
  std::string path_;
  bool opened_ = false;
};

// A path in `folder` that no other process or thread has been given: what is written there is complete before it is
// renamed to where others look.
std::string TemporaryPath(const std::string& folder);

// Creates or replaces a file of the folder; 0 or errno.
int ReplaceFile(const std::string& folder, const std::string& path, std::string_view bytes);

}  // namespace pjrt_metal
