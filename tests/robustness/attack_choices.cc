// Changes remembered choices between library and kernels, and what stands beside them: attack_choices CORPUS COUNT SEED
//
// Runs in a cache folder of its own (PJRT_METAL_CACHE_DIR). The sound file says that the library wins; with nothing
// remembered the kernels run, since there is no child to try the library in. So the library is chosen where a file
// says so that is what was written, or was sealed anew and is what could have been written; and nowhere else. The file
// of who times a call (.trying) is changed as well, and any of them may be no file at all.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
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

std::string System(const Device& device) { return device.info().kind + "\n" + device.info().platform_version + "\n"; }

// The key of the program's only call: library_choice.cc.
std::string Key(const Program& program, const Device& device) {
  std::string key = "pjrt_metal library choice 1\n" + Describe(program.library_ops[0]) + "\n" + System(device);
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
        text[at] = random.OneIn(2) ? static_cast<char>(random.Next()) : "0123456789abcdef-+.px \n"[random.Below(23)];
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

// Other times, mostly as they are written.
std::string OtherTimes(Random& random) {
  const auto time = [&] {
    if (random.OneIn(8)) return std::copysign(random.OneIn(2) ? HUGE_VAL : std::nan(""), random.OneIn(2) ? -1 : 1);
    const double seconds = std::ldexp(1 + random.Below(1 << 20) * 0x1p-20, -10 - static_cast<int>(random.Below(20)));
    return random.OneIn(8) ? -seconds : random.OneIn(16) ? 0 : seconds;
  };
  char line[80];
  std::snprintf(line, sizeof line, "%a %a\n", time(), time());
  return line;
}

enum class Says { kNothing, kLibrary, kKernels, kMeasureAnew };

// What a file says, read independently of library_choice.cc, to a process that `may_measure`.
Says What(const std::string& file, const std::string& key, bool may_measure) {
  if (!file.starts_with(key)) return Says::kNothing;
  const size_t end = file.find('\n', key.size());
  if (end == std::string::npos || file != Sealed(file.substr(0, end + 1))) return Says::kNothing;
  const std::string line = file.substr(key.size(), end + 1 - key.size());
  char* rest = nullptr;
  const double library = std::strtod(line.c_str(), &rest), kernels = std::strtod(rest, nullptr);
  char again[80];
  std::snprintf(again, sizeof again, "%a %a\n", library, kernels);
  if (line != again || !(library >= 0 && kernels >= 0 && library < HUGE_VAL && kernels < HUGE_VAL))
    return Says::kNothing;
  if (may_measure && std::max(library, kernels) >= 0.5e-3) return Says::kMeasureAnew;
  return library + 20e-6 < kernels ? Says::kLibrary : Says::kKernels;
}

// Puts something that is no file of ours at `path`.
void PutOddThing(const std::string& path, Random& random) {
  unlink(path.c_str());
  switch (random.Below(4)) {
    case 0:
      mkdir(path.c_str(), 0700);
      break;
    case 1:
      mkfifo(path.c_str(), 0600);
      break;
    case 2:
      if (symlink(path.c_str(), path.c_str()) != 0) std::abort();
      break;
    default:
      WriteFile(path, "x");
      // Sparse: a byte more than is read, or more than memory.
      if (truncate(path.c_str(), random.OneIn(2) ? (off_t{1} << 30) + 1 : off_t{1} << 43) != 0) std::abort();
  }
}

// Who timed the call before, and whether somebody does now. Returns how many ended while they did.
size_t PutTrying(const std::string& path, Random& random, int& lock) {
  lock = -1;
  if (random.OneIn(3)) return 0;
  if (random.OneIn(4)) {
    PutOddThing(path, random);
    struct stat info;
    return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? static_cast<size_t>(info.st_size) : 0;
  }
  std::string text(random.OneIn(4) ? random.Below(5000) : random.Below(5), 'x');
  for (char& c : text) c = static_cast<char>(random.Next());
  if (WriteFile(path, text) != 0) std::abort();
  if (random.OneIn(4)) {
    lock = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (flock(lock, LOCK_EX) != 0) std::abort();
  }
  return text.size();
}

void Fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
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
  uint64_t refused = 0, same = 0, resealed = 0, kernels = 0, anew = 0, condemned = 0;
  // What was found once is not read again in a process: each attempt has kernels of another name and another system,
  // and so another key and condemnation. The device is this program's own.
  auto& info = const_cast<DeviceInfo&>(device->info());
  Program program = *sound;
  for (uint64_t i = 0; i < count; ++i) {
    Begin(i);
    Random random(seed, i);
    for (auto& kernel : program.kernels) kernel.name = "k_" + std::to_string(seed) + "_" + std::to_string(i);
    info.platform_version = "plain " + std::to_string(i);
    const std::string key = Key(program, *device);
    const std::string times = "0x1p-20 0x1p-12\n";  // seconds of the library and of the kernels
    const std::string path = folder + "/library-" + Hex(Hasher().Add(key).Finish()) + ".txt";
    const std::string changed = random.OneIn(50)  ? Sealed(key + times)
                                : random.OneIn(3) ? Sealed(key + OtherTimes(random))
                                : random.OneIn(2) ? Sealed(Change(key + times, random))
                                                  : Change(Sealed(key + times), random);
    const bool no_file = random.OneIn(30);
    if (no_file) {
      PutOddThing(path, random);
    } else if (ReplaceFile(folder, path, changed) != 0) {
      return 2;
    }
    const std::string condemnation =
        folder + "/library-condemned-" + Hex(Hasher().Add(System(*device)).Finish()) + ".txt";
    const bool condemns = random.OneIn(20), odd = random.OneIn(20);
    if (condemns && ReplaceFile(folder, condemnation, Change(changed, random) + "x") != 0) return 2;
    if (!condemns && odd) PutOddThing(condemnation, random);
    int lock = -1;
    const size_t ended = PutTrying(path + ".trying", random, lock);
    const Says says = no_file ? Says::kNothing : What(changed, key, lock < 0);
    const auto pipelines = device->Compile("", program.kernels);
    const std::vector<size_t> offsets(program.constants.size());
    const bool chosen = ChooseLibraryCalls(program, *device, *allocator, pipelines, offsets).at(0) != nullptr;
    if (chosen && condemns) Fail("what was condemned is called");
    if (chosen && says != Says::kLibrary) Fail("a file that does not say so was taken for a choice");
    if (!chosen && !condemns && says == Says::kLibrary) Fail("a sound choice was not taken");
    if (condemns) {
      ++condemned;
    } else if (says == Says::kNothing) {
      ++refused;
    } else if (says == Says::kKernels) {
      ++kernels;
    } else if (says == Says::kMeasureAnew) {
      // Here both take a second: the kernels run. Three that ended condemn the library.
      ++anew;
      if (!odd && (ended >= 3) != (ReadFile(condemnation).has_value())) Fail("ended processes miscounted");
    } else {
      ++(changed == Sealed(key + times) ? same : resealed);
    }
    if (lock >= 0) close(lock);
    std::error_code ignored;
    for (const std::string& file : {path, path + ".trying", condemnation}) std::filesystem::remove(file, ignored);
  }
  alarm(0);
  std::printf(
      "choices: %llu changed, %llu refused, %llu the same, %llu sealed anew and the library's, %llu the kernels', "
      "%llu measured anew, %llu condemned\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(refused),
      static_cast<unsigned long long>(same), static_cast<unsigned long long>(resealed),
      static_cast<unsigned long long>(kernels), static_cast<unsigned long long>(anew),
      static_cast<unsigned long long>(condemned));
  return 0;
}
