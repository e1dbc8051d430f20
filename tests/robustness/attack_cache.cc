// Changes files of the software device's kernel cache and asks for their kernels: attack_cache COUNT SEED
//
// Runs in a cache folder of its own (PJRT_METAL_CACHE_DIR). A file is used only if it is what was written, or if it was
// sealed anew and its key is among those it names; whatever else it is, it is no entry.
#include <unistd.h>

#include <array>
#include <memory>

#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/hash.h"
#include "csrc/software/disk_cache.h"
#include "tests/robustness/attack.h"

namespace pjrt_metal {
std::vector<std::unique_ptr<Device>> DiscoverDevices() { return {}; }
}  // namespace pjrt_metal

namespace pjrt_metal::attack {
namespace {

constexpr size_t kHashAndMagic = sizeof(Digest) + 8;  // at the end of a file, as disk_cache.cc writes it

std::string Change(std::string file, Random& random, bool& sealed) {
  for (size_t i = 1 + random.Below(4); i > 0 && !file.empty(); --i) {
    // Half of the changes near the end, where the numbers are.
    const size_t at = random.OneIn(2) ? file.size() - 1 - random.Below(std::min<size_t>(file.size(), 120))
                                      : random.Below(file.size());
    switch (random.Below(5)) {
      case 0:
        file[at] = static_cast<char>(file[at] ^ (1 << random.Below(8)));
        break;
      case 1:
        file.erase(at, 1 + random.Below(40));
        break;
      case 2:
        file.insert(at, file.substr(random.Below(file.size()), random.Below(40)));
        break;
      case 3:
        file.resize(random.OneIn(4) ? 0 : at);
        break;
      default: {
        const uint64_t number = random.Odd();
        std::memcpy(file.data() + at, &number, std::min<size_t>(sizeof number, file.size() - at));
      }
    }
  }
  sealed = random.OneIn(2) && file.size() > kHashAndMagic;
  if (sealed) {
    const Digest hash = Hasher().Add(file.substr(0, file.size() - kHashAndMagic)).Finish();
    std::memcpy(file.data() + file.size() - kHashAndMagic, hash.data(), sizeof hash);
  }
  return file;
}

}  // namespace
}  // namespace pjrt_metal::attack

int main(int argc, char** argv) {
  using namespace pjrt_metal;
  using namespace pjrt_metal::attack;
  if (argc < 3) return 2;
  Install();
  const uint64_t count = std::strtoull(argv[1], nullptr, 10), seed = std::strtoull(argv[2], nullptr, 10);
  const std::string folder = CacheFolderPath();
  software::DiskCache cache;
  std::array<Digest, 3> keys;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = Hasher().Add(std::string(1, static_cast<char>('a' + i))).Finish();
  std::string image(700, 'x');
  for (size_t i = 0; i < image.size(); ++i) image[i] = static_cast<char>(i * 37);
  const std::string source = folder + ".image";
  if (WriteFile(source, image) != 0) return 2;
  cache.Add(source, std::span(keys).first(2));  // not the third
  const std::string entry = folder + "/" + Hex(keys[0]) + ".so", other = folder + "/" + Hex(keys[2]) + ".so";
  const std::string sound = ReadFile(entry).value_or("");
  if (cache.Find(keys).size() != 2) return 1;
  uint64_t refused = 0, same = 0, resealed = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Begin(i);
    Random random(seed, i);
    bool sealed = false;
    const std::string changed = Change(sound, random, sealed);
    const bool at_other = random.OneIn(8);  // a file in another's place
    if (ReplaceFile(folder, at_other ? other : entry, changed) != 0) return 2;
    const auto found = cache.Find({&keys[at_other ? 2 : 0], 1});
    if (found.empty()) {
      ++refused;
    } else if (changed == sound && !at_other) {
      ++same;
    } else if (sealed && changed.find(std::string(reinterpret_cast<const char*>(keys[at_other ? 2 : 0].data()), 32)) !=
                             std::string::npos) {
      ++resealed;
    } else {
      std::fprintf(stderr, "a changed file was taken for an entry\n");
      std::abort();
    }
    if (at_other) unlink(other.c_str());
  }
  alarm(0);
  std::printf("cache: %llu changed, %llu refused, %llu the same, %llu sealed anew and sound\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(same), static_cast<unsigned long long>(resealed));
  return 0;
}
