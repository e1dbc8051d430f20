#include "csrc/runtime/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "csrc/runtime/error.h"

namespace pjrt_metal {
namespace {

// Of a file that is read: kernels and lists of them take some megabytes. Larger is none of ours, and may be sparse.
constexpr off_t kMostBytes = off_t{1} << 30;

void RemoveFolder(const std::string& path) {
  std::error_code ignored;  // what cannot be deleted stays
  std::filesystem::remove_all(path, ignored);
}

}  // namespace

std::optional<std::string> ReadFile(const std::string& path) {
  // A pipe is not waited for.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return std::nullopt;
  struct stat info;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > kMostBytes) {
    close(file);
    return std::nullopt;
  }
  std::string text;
  ssize_t count;
  do {
    const size_t filled = text.size();
    constexpr size_t kPiece = 1 << 17;
    text.resize(filled + kPiece);
    count = read(file, text.data() + filled, kPiece);
    text.resize(filled + static_cast<size_t>(count > 0 ? count : 0));
  } while (count > 0 || (count < 0 && errno == EINTR));
  close(file);
  if (count < 0) return std::nullopt;
  return text;
}

int WriteFile(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return errno;
  while (!text.empty()) {
    const ssize_t count = write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = count < 0 ? errno : ENOSPC;
      close(file);
      return error;
    }
    text.remove_prefix(static_cast<size_t>(count));
  }
  return close(file) == 0 ? 0 : errno;
}

TemporaryFolder::TemporaryFolder(const std::function<int(const std::string&)>& fill) {
  std::vector<std::string> parents = {"/tmp", "/dev/shm"};
  const char* chosen = std::getenv("TMPDIR");
  if (chosen != nullptr && *chosen != '\0') parents.insert(parents.begin(), chosen);
  std::string reasons;
  for (const std::string& parent : parents) {
    path_ = parent + "/pjrt_metal_XXXXXX";
    int error = 0;
    if (mkdtemp(path_.data()) == nullptr) {
      error = errno;
    } else {
      error = fill(path_);
      if (error == 0) return;
      RemoveFolder(path_);
    }
    reasons += "\n  " + parent + ": " + std::strerror(error);
  }
  throw ResourceExhausted("no folder for temporary files; set TMPDIR to one with free space. Tried:" + reasons);
}

TemporaryFolder::~TemporaryFolder() {
  if (!kept_) RemoveFolder(path_);
}

}  // namespace pjrt_metal
