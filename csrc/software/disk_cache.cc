#include "csrc/software/disk_cache.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal::software {
namespace {

constexpr char kMagic[8] = {'p', 'j', 'r', 't', 'm', 't', 'l', '1'};

// The end of a file: image, keys, then this.
struct Trailer {
  uint64_t image_bytes;
  uint64_t keys;
  Digest hash;  // of everything before it
  char magic[sizeof kMagic];
};
static_assert(sizeof(Trailer) == 56);

std::string Seal(std::string image, std::span<const Digest> keys) {
  Trailer trailer{image.size(), keys.size(), {}, {}};
  std::memcpy(trailer.magic, kMagic, sizeof kMagic);
  for (const Digest& key : keys) image.append(reinterpret_cast<const char*>(key.data()), key.size());
  image.append(reinterpret_cast<const char*>(&trailer), offsetof(Trailer, hash));
  trailer.hash = Hasher().Add(image).Finish();
  image.append(reinterpret_cast<const char*>(&trailer.hash), sizeof trailer - offsetof(Trailer, hash));
  return image;
}

// The keys of a sound file's kernels; nothing if it is damaged, or no file of ours.
std::optional<std::set<Digest>> Unseal(std::string_view file) {
  Trailer trailer;
  if (file.size() < sizeof trailer) return std::nullopt;
  std::memcpy(&trailer, file.data() + file.size() - sizeof trailer, sizeof trailer);
  const uint64_t before = file.size() - sizeof trailer;
  if (std::memcmp(trailer.magic, kMagic, sizeof kMagic) != 0 || trailer.image_bytes > before ||
      trailer.keys != (before - trailer.image_bytes) / sizeof(Digest) ||
      (before - trailer.image_bytes) % sizeof(Digest) != 0 ||
      Hasher().Add(file.substr(0, before + offsetof(Trailer, hash))).Finish() != trailer.hash) {
    return std::nullopt;
  }
  std::set<Digest> keys;
  for (uint64_t i = 0; i < trailer.keys; ++i) {
    Digest key;
    std::memcpy(key.data(), file.data() + trailer.image_bytes + i * sizeof key, sizeof key);
    keys.insert(key);
  }
  return keys;
}

std::string EntryPath(const std::string& folder, const Digest& key) { return folder + '/' + Hex(key) + ".so"; }

}  // namespace

std::map<Digest, std::string> DiskCache::Find(std::span<const Digest> keys) {
  std::map<Digest, std::string> found;
  const std::string folder = folder_.Open();
  if (folder.empty()) return found;
  for (const Digest& key : keys) {
    if (found.contains(key)) continue;
    const std::string path = EntryPath(folder, key);
    const std::optional<std::string> file = ReadFile(path);
    if (!file) continue;
    const std::optional<std::set<Digest>> kernels = Unseal(*file);
    if (!kernels || !kernels->contains(key)) {
      LogPhase("software: bad cache entry", 0, path + " will be replaced");
      continue;
    }
    CacheFolder::Used(path);
    for (const Digest& other : keys) {
      if (kernels->contains(other)) found.emplace(other, path);
    }
  }
  return found;
}

void DiskCache::Add(const std::string& path, std::span<const Digest> keys) {
  const std::string folder = folder_.Open();
  if (folder.empty()) return;
  const std::string temporary = TemporaryPath(folder);
  const std::string link_name = temporary + ".link";
  std::optional<std::string> image = ReadFile(path);
  int error = image ? 0 : EIO;
  std::string sealed;
  if (image) {
    sealed = Seal(std::move(*image), keys);
    error = WriteFile(temporary, sealed);
  }
  for (const Digest& key : keys) {
    if (error != 0) break;
    // Where the file system has no links, a copy.
    if (link(temporary.c_str(), link_name.c_str()) != 0) error = WriteFile(link_name, sealed);
    if (error == 0 && rename(link_name.c_str(), EntryPath(folder, key).c_str()) != 0) error = errno;
  }
  unlink(link_name.c_str());
  unlink(temporary.c_str());
  if (error != 0) LogPhase("software: not cached", 0, folder + ": " + std::strerror(error));
  folder_.Added(sealed.size());
}

}  // namespace pjrt_metal::software
