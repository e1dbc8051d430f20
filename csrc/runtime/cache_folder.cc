#include "csrc/runtime/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

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

}  // namespace

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
  return folder + "/new." + std::to_string(getpid()) + "." + std::to_string(number++);
}

int ReplaceFile(const std::string& folder, const std::string& path, std::string_view bytes) {
  const std::string temporary = TemporaryPath(folder);
  int error = WriteFile(temporary, bytes);
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(temporary.c_str());
  return error;
}

}  // namespace pjrt_metal
