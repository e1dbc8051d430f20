// The folder in which devices keep what they compiled, and the library choice what it measured.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

namespace pjrt_metal {

// PJRT_METAL_CACHE_DIR, or the user's cache folder; empty if there is none.
std::string CacheFolderPath();

// Files in it appear complete, by renaming, so any number of processes may share it; nothing is ever deleted, and a
// user may delete any of it at any time. Thread-safe.
class CacheFolder {
 public:
  // Empty: nothing is kept. Nothing is touched before Open.
  explicit CacheFolder(std::string path = CacheFolderPath()) : path_(std::move(path)) {}
  // The path; on the first call the folder, and what it is in, is made for this user alone unless it is there. Empty if
  // it cannot be trusted or used, which is logged; said aloud if the user asked for it.
  std::string Open();

 private:
  std::mutex mutex_;
  std::string path_;
  bool opened_ = false;
};

// A path in `folder` that no other process or thread has been given: what is written there is complete before it is
// renamed to where others look.
std::string TemporaryPath(const std::string& folder);

// Creates or replaces a file of the folder; 0 or errno.
int ReplaceFile(const std::string& folder, const std::string& path, std::string_view bytes);

}  // namespace pjrt_metal
