#include "csrc/runtime/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "csrc/runtime/environment.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal {
namespace {

void MakeFolders(const std::filesystem::path& folder) {
  if (mkdir(folder.c_str(), 0700) == 0 || errno != ENOENT || !folder.has_relative_path()) return;
  MakeFolders(folder.parent_path());
  mkdir(folder.c_str(), 0700);
}

// Makes the folder; returns why it cannot be trusted or used; empty: it can.
std::string Prepare(const std::string& folder) {
  MakeFolders(folder);
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISDIR(info.st_mode)) return "not a folder";
  if (info.st_uid != geteuid()) return "owned by another user";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "others may write there (chmod go-w it)";
  return "";
}

constexpr uint64_t kDefaultMegabytes = 512;
// A process looks through the folder after it added this share of the bound, or if nobody did for so long.
constexpr uint64_t kShare = 16;
constexpr time_t kSeconds = 600;
constexpr time_t kAbandoned = 24 * 60 * 60;  // a file that was to be renamed: its process is gone
constexpr const char* kTemporary = "new.";

// A file with all its names. Several kernels of one library are as many links.
struct Kept {
  timespec used;
  uint64_t bytes;
  std::vector<std::string> names;
};

bool Earlier(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

timespec ModificationTime(const struct stat& info) {
#ifdef __APPLE__
  return info.st_mtimespec;
#else
  return info.st_mtim;
#endif
}

// The folder's files; those that were abandoned half written are deleted.
std::vector<Kept> Files(const std::string& folder) {
  std::map<std::pair<dev_t, ino_t>, Kept> files;
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string path = entry->path().string();
    struct stat info;
    if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (entry->path().filename().string().starts_with(kTemporary)) {
      if (time(nullptr) - info.st_mtime > kAbandoned) unlink(path.c_str());
      continue;
    }
    Kept& file = files[{info.st_dev, info.st_ino}];
    file.used = ModificationTime(info);
    file.bytes = static_cast<uint64_t>(info.st_blocks) * 512;
    file.names.push_back(path);
  }
  std::vector<Kept> result;
  for (auto& [id, file] : files) result.push_back(std::move(file));
  return result;
}

// Deletes what was used least recently until `bound` less a tenth is left, if there is more than `bound`. Other
// processes may do the same at once. A library that is loaded stays so.
void Trim(const std::string& folder, uint64_t bound) {
  std::vector<Kept> files = Files(folder);
  uint64_t total = 0;
  for (const Kept& file : files) total += file.bytes;
  if (total <= bound) return;
  std::sort(files.begin(), files.end(), [](const Kept& a, const Kept& b) { return Earlier(a.used, b.used); });
  size_t deleted = 0;
  for (; deleted < files.size() && total > bound - bound / 10; ++deleted) {
    for (const std::string& name : files[deleted].names) unlink(name.c_str());
    total -= files[deleted].bytes;
  }
  LogPhase("cache trimmed", 0,
           folder + ": " + std::to_string(deleted) + " of " + std::to_string(files.size()) + " files");
}

}  // namespace

CacheFolder::CacheFolder(std::string path)
    : bound_(environment::CacheMegabytes().value_or(kDefaultMegabytes) << 20), path_(std::move(path)) {}

void CacheFolder::Used(const std::string& file) { utimensat(AT_FDCWD, file.c_str(), nullptr, 0); }

void CacheFolder::Added(uint64_t bytes) {
  const std::string folder = Open();
  if (folder.empty()) return;
  {
    const std::lock_guard lock(mutex_);
    added_ += bytes;
    // When the folder was last looked through, by any process. Made anew by whoever is about to.
    const std::string stamp = folder + "/trimmed";
    struct stat info;
    const bool recent = stat(stamp.c_str(), &info) == 0 && time(nullptr) - info.st_mtime < kSeconds;
    if (recent && added_ < bound_ / kShare) return;
    added_ = 0;
    WriteFile(stamp, "");
  }
  Trim(folder, bound_);
}

std::string CacheFolderPath() {
  if (std::string folder = environment::CacheDir(); !folder.empty()) return folder;
  const std::string home = environment::Home();
#ifdef __APPLE__
  return home.empty() ? "" : home + "/Library/Caches/pjrt-metal";
#else
  if (const std::string caches = environment::XdgCacheHome(); !caches.empty()) return caches + "/pjrt-metal";
  return home.empty() ? "" : home + "/.cache/pjrt-metal";
#endif
}

std::string CacheFolder::Open() {
  const std::lock_guard lock(mutex_);
  if (opened_ || path_.empty()) return path_;
  opened_ = true;
  const std::string problem = Prepare(path_);
  if (problem.empty()) return path_;
  const std::string what = path_ + ": " + problem;
  static std::atomic_flag said;
  if (path_ == environment::CacheDir() && !said.test_and_set()) {
    Warn("PJRT_METAL_CACHE_DIR cannot be used, nothing is kept there: " + what);
  } else {
    LogPhase("no cache folder", 0, what);
  }
  path_.clear();
  return path_;
}

std::string TemporaryPath(const std::string& folder) {
  static std::atomic<uint64_t> number = 0;
  return folder + "/" + kTemporary + std::to_string(getpid()) + "." + std::to_string(number++);
}

int ReplaceFile(const std::string& folder, const std::string& path, std::string_view bytes) {
  const std::string temporary = TemporaryPath(folder);
  int error = WriteFile(temporary, bytes);
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(temporary.c_str());
  return error;
}

}  // namespace pjrt_metal
