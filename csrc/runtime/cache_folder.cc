#include "csrc/runtime/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "csrc/runtime/environment.h"

namespace pjrt_metal {
namespace {

void MakeFolders(const std::filesystem::path& folder) {
  if (mkdir(folder.c_str(), 0700) == 0 || errno != ENOENT || !folder.has_relative_path()) return;
  MakeFolders(folder.parent_path());
  mkdir(folder.c_str(), 0700);
}

}  // namespace

std::string CacheFolder() {
  if (std::string folder = environment::CacheDir(); !folder.empty()) return folder;
  const std::string home = environment::Home();
#ifdef __APPLE__
  return home.empty() ? "" : home + "/Library/Caches/pjrt-metal";
#else
  if (const std::string caches = environment::XdgCacheHome(); !caches.empty()) return caches + "/pjrt-metal";
  return home.empty() ? "" : home + "/.cache/pjrt-metal";
#endif
}

std::string PrepareFolder(const std::string& folder) {
  MakeFolders(folder);
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) return std::strerror(errno);
  if (!S_ISDIR(info.st_mode)) return "not a folder";
  if (info.st_uid != geteuid()) return "owned by another user";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "others may write there (chmod go-w it)";
  return "";
}

std::string TemporaryPath(const std::string& folder) {
  static std::atomic<uint64_t> number = 0;
  return folder + "/new." + std::to_string(getpid()) + "." + std::to_string(number++);
}

}  // namespace pjrt_metal
