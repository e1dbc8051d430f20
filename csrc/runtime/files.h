// Small files, whole. Failures are values: a full disk or a read-only folder is no exception here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace pjrt_metal {

std::optional<std::string> ReadFile(const std::string& path);
// Creates or replaces the file; 0 or errno.
int WriteFile(const std::string& path, std::string_view text);

// A private folder for one compilation, deleted with all in it unless kept.
class TemporaryFolder {
 public:
  // In TMPDIR, /tmp or memory-backed /dev/shm: the first where `fill`, given the new folder's path,
  // returns 0 and not errno. Throws ResourceExhausted with what stood in the way of each.
  explicit TemporaryFolder(const std::function<int(const std::string&)>& fill);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  void Keep() { kept_ = true; }

 private:
  std::string path_;
  bool kept_ = false;
};

}  // namespace pjrt_metal
