#include "csrc/metal/archives.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/error.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

std::string ArchivePath(const std::string& folder, const Digest& key) {
  return folder + '/' + Hex(key) + ".mtlarchive";
}
std::string HashPath(const std::string& archive) { return archive + ".hash"; }

std::string_view Bytes(const Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }

}  // namespace

Ref Archives::Find(const Digest& key) {
  const std::string folder = folder_.Open();
  if (folder.empty()) return Ref();
  const std::string path = ArchivePath(folder, key);
  const std::optional<std::string> archive = ReadFile(path);
  if (!archive) return Ref();
  const std::optional<std::string> hash = ReadFile(HashPath(path));
  if (!hash || *hash != Bytes(Hasher().Add(*archive).Finish())) {
    LogPhase("metal: bad archive", 0, path + " will be replaced");
    return Ref();
  }
  CacheFolder::Used(path);
  CacheFolder::Used(HashPath(path));
  const Pool pool;
  const Ref descriptor = New(Class::kMTLBinaryArchiveDescriptor);
  Send<Message::kSetUrl>(descriptor.get(), FileUrl(path));
  Id error = nullptr;
  Ref loaded = Ref::Adopt(Send<Message::kNewBinaryArchive>(device_.get(), descriptor.get(), &error));
  if (!loaded) LogPhase("metal: bad archive", 0, path + " will be replaced: " + ErrorText(error));
  return loaded;
}

Ref Archives::Make(Id pipeline) {
  if (folder_.Open().empty()) return Ref();
  const Pool pool;
  // Without a URL: an empty archive.
  const Ref descriptor = New(Class::kMTLBinaryArchiveDescriptor);
  Id error = nullptr;
  Ref archive = Ref::Adopt(Send<Message::kNewBinaryArchive>(device_.get(), descriptor.get(), &error));
  if (archive && Send<Message::kAddComputePipelineFunctions>(archive.get(), pipeline, &error)) return archive;
  LogPhase("metal: not archived", 0, ErrorText(error));
  return Ref();
}

void Archives::Add(const Digest& key, Id archive) {
  const Pool pool;
  const std::string folder = folder_.Open();
  const std::string path = ArchivePath(folder, key);
  const std::string temporary = TemporaryPath(folder);
  Id error = nullptr;
  std::string problem;
  if (!Send<Message::kSerializeToUrl>(archive, FileUrl(temporary), &error)) {
    problem = ErrorText(error);
  } else if (const std::optional<std::string> bytes = ReadFile(temporary); !bytes) {
    problem = "Metal wrote no file";
  } else {
    int failed = rename(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
    if (failed == 0) failed = ReplaceFile(folder, HashPath(path), Bytes(Hasher().Add(*bytes).Finish()));
    if (failed != 0) problem = std::strerror(failed);
    folder_.Added(bytes->size());
  }
  if (problem.empty()) return;
  unlink(temporary.c_str());
  LogPhase("metal: not archived", 0, path + ": " + problem);
}

}  // namespace pjrt_metal::metal
