// Changes remembered choices between library and kernels, and what stands beside them: attack_choices CORPUS COUNT SEED
//
// Runs in a cache folder of its own (PJRT_METAL_CACHE_DIR). The sound file says that the library wins; with nothing
// remembered the kernels run, since there is no child to try the library in. So the library is chosen only where a file
// is what was written, or was sealed anew with its key as it was.
#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/hash.h"
#include "csrc/runtime/library_choice.h"
#include "csrc/runtime/program.h"
#include "tests/robustness/attack.h"

namespace pjrt_metal {
std::vector<std::unique_ptr<Device>> DiscoverDevices();
}

namespace pjrt_metal::attack {
namespace {

// The key of the program's only call: library_choice.cc.
std::string Key(const Program& program, const Device& device) {
  std::string key = "pjrt_metal library choice 1\n" + Describe(program.library_ops[0]) + "\n" + device.info().kind +
                    "\n" + device.info().platform_version + "\n";
  for (const Step& step : program.body) {
    if (step.kind != StepKind::kLibrary) continue;
    for (const Step& launch : step.bodies[0]) key += program.kernels[launch.kernel].name + "\n";
  }
  return key;
}

std::string Sealed(const std::string& text) { return text + Hex(Hasher().Add(text).Finish()) + "\n"; }

std::string Change(std::string text, Random& random) {
  for (size_t i = 1 + random.Below(3); i > 0 && !text.empty(); --i) {
    // Half of the changes where the numbers are.
    const size_t at = random.OneIn(2) ? text.size() - 1 - random.Below(std::min<size_t>(text.size(), 110))
                                      : random.Below(text.size());
    switch (random.Below(5)) {
      case 0:
        text[at] = static_cast<char>(random.Next());
        break;
      case 1:
        text.erase(at, 1 + random.Below(30));
        break;
      case 2:
        text.insert(at, std::string(random.Below(400), "0\0n-%a p\n"[random.Below(10)]));
        break;
      case 3:
        text.resize(random.OneIn(4) ? 0 : at);
        break;
      default: {
        const char* const numbers[] = {"nan", "inf", "-inf", "0x1p+9999", "-0x0p+0", "1e-9999", "0x", "%s%n"};
        text.insert(at, numbers[random.Below(std::size(numbers))]);
      }
    }
  }
  return text;
}

}  // namespace
}  // namespace pjrt_metal::attack

int main(int argc, char** argv) {
  using namespace pjrt_metal;
  using namespace pjrt_metal::attack;
  if (argc < 4) return 2;
  Install();
  const std::unique_ptr<Device> device = std::move(DiscoverDevices().front());
  const auto allocator = std::make_shared<Allocator>(device.get(), device->info().memory_bytes);
  std::shared_ptr<const Program> sound;
  const std::vector<uint8_t> file = ReadAll(argv[1]);
  for (size_t at = sizeof(uint32_t); sound == nullptr && at < file.size();) {
    uint64_t size;
    uint32_t places;
    std::memcpy(&size, &file[at], sizeof size);
    at += sizeof size;
    const auto program = ParseProgram(std::as_bytes(std::span(file).subspan(at, size)));
    if (program->library_ops.size() == 1 && program->body.size() == 1) sound = program;
    at += size;
    std::memcpy(&places, &file[at], sizeof places);
    at += sizeof places + size_t{5} * places;
  }
  if (sound == nullptr) return 2;
  const std::string folder = CacheFolder().Open();
  const uint64_t count = std::strtoull(argv[2], nullptr, 10), seed = std::strtoull(argv[3], nullptr, 10);
  uint64_t refused = 0, same = 0, resealed = 0, condemned = 0;
  // What was found once is not read again in a process: each attempt has kernels of another name, and so another key.
  Program program = *sound;
  for (uint64_t i = 0; i < count; ++i) {
    Begin(i);
    Random random(seed, i);
    for (auto& kernel : program.kernels) kernel.name = "k_" + std::to_string(seed) + "_" + std::to_string(i);
    const std::string key = Key(program, *device);
    const std::string text = key + "0x1p-20 0x1p-12\n";  // seconds of the library and of the kernels
    const std::string path = folder + "/library-" + Hex(Hasher().Add(key).Finish()) + ".txt";
    const bool seal = random.OneIn(2);
    const std::string changed = random.OneIn(50) ? Sealed(text)
                                : seal           ? Sealed(Change(text, random))
                                                 : Change(Sealed(text), random);
    if (ReplaceFile(folder, path, changed) != 0) return 2;
    const std::string system = device->info().kind + "\n" + device->info().platform_version + "\n";
    const std::string condemnation = folder + "/library-condemned-" + Hex(Hasher().Add(system).Finish()) + ".txt";
    const bool condemns = random.OneIn(20);
    if (condemns && ReplaceFile(folder, condemnation, Change(text, random) + "x") != 0) return 2;
    const auto pipelines = device->Compile("", program.kernels);
    const std::vector<size_t> offsets(program.constants.size());
    const bool chosen = ChooseLibraryCalls(program, *device, *allocator, pipelines, offsets).at(0) != nullptr;
    if (condemns && chosen) {
      std::fprintf(stderr, "what was condemned is called\n");
      std::abort();
    }
    if (condemns) {
      ++condemned;
    } else if (!chosen) {
      ++refused;
    } else if (changed == Sealed(text)) {
      ++same;
    } else if (seal && changed.starts_with(key)) {
      ++resealed;
    } else {
      std::fprintf(stderr, "a changed file was taken for a choice\n");
      std::abort();
    }
    unlink(path.c_str());
    unlink(condemnation.c_str());
  }
  alarm(0);
  std::printf("choices: %llu changed, %llu refused, %llu the same, %llu sealed anew and sound, %llu condemned\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(same), static_cast<unsigned long long>(resealed),
              static_cast<unsigned long long>(condemned));
  return 0;
}
