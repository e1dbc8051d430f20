#include "csrc/runtime/library_choice.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>

#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/environment.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/hash.h"
#include "csrc/runtime/library_trial.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal {
namespace {

// Each is run once to warm up (first use compiles and pages in) and then this often, in turns, so that a clock that
// rises or falls meets both; the fastest counts.
constexpr int kRepetitions = 5;
// Bytes of operands while timing: 0.01 as f32 and bf16, 1.06 as f16. No NaN, no denormal.
constexpr int kFiller = 0x3c;

// What was remembered is measured again in each process, this often, where the slower of the two takes as long: then a
// wrong choice costs more than the measurement. MPSGraph's times differ from process to process
// (pytorch/pytorch#182815).
constexpr int kRepetitionsAnew = 2;
constexpr double kWorthMeasuring = 0.5e-3;
// What a library call costs beside the GPU's time, which is all that is measured: the CPU encodes it for some 15 us,
// and it ends the encoder of the launches around it. Assumptions until a Mac has measured them.
constexpr double kLibraryOverhead = 15e-6 + 5e-6;
// Processes that ended while they timed a description, before it is believed that they did not end by chance.
constexpr size_t kMostEnded = 3;
// Characters of why the library is condemned, which every log repeats.
constexpr size_t kMostReason = 2000;

struct Times {
  double library, kernels;  // seconds of the GPU's
  bool library_wins() const { return library + kLibraryOverhead < kernels; }
  bool sound() const { return std::isfinite(library) && std::isfinite(kernels) && library >= 0 && kernels >= 0; }
  bool worth_measuring() const { return std::max(library, kernels) >= kWorthMeasuring; }
};

std::string Milliseconds(const Times& times) {
  char text[80];
  std::snprintf(text, sizeof text, "mpsgraph %.4f ms, kernels %.4f ms", times.library * 1e3, times.kernels * 1e3);
  return text;
}

// A remembered choice: the key, a line with both times, and a hash of all before it. Anything else is no entry.
class Choices {
 public:
  std::optional<Times> Find(const std::string& key) {
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    const std::string path = Path(key);
    const std::optional<std::string> file = path.empty() ? std::nullopt : ReadFile(path);
    if (!file) return std::nullopt;
    Times times{};
    if (!file->starts_with(key) ||
        std::sscanf(file->c_str() + key.size(), "%la %la\n", &times.library, &times.kernels) != 2 || !times.sound() ||
        *file != Entry(key, times)) {
      LogPhase("library: bad cache entry", 0, path + " will be replaced");
      return std::nullopt;
    }
    known_.emplace(key, times);
    return times;
  }

  void Add(const std::string& key, const Times& times) {
    known_[key] = times;
    const std::string path = Path(key);
    if (path.empty()) return;
    const int error = ReplaceFile(folder_.Open(), path, Entry(key, times));
    if (error != 0) LogPhase("library: not remembered", 0, path + ": " + std::strerror(error));
  }

  // Why the library is to be called no more on this chip and system; empty: it may be.
  std::string Condemned(const std::string& system) {
    if (const auto found = condemned_.find(system); found != condemned_.end()) return found->second;
    const std::string path = CondemnationPath(system);
    const std::optional<std::string> file = path.empty() ? std::nullopt : ReadFile(path);
    return file ? file->substr(0, kMostReason) + "; delete " + path + " to try it again" : "";
  }

  // One bad call condemns the library: every further one would be tried at the price of a crashed process.
  void Condemn(const std::string& system, const std::string& why) {
    condemned_[system] = why;
    LogPhase("library: condemned", 0, why);
    const std::string path = CondemnationPath(system);
    if (!path.empty()) ReplaceFile(folder_.Open(), path, why);
  }

  // While a call is timed, a file stands in the cache folder, locked by the process that times it: no other one times
  // it meanwhile. The lock goes with its owner, however that ends; the file, a byte for each owner that ended so,
  // stays.
  class Timing {
   public:
    Timing(Choices& choices, const std::string& key) : path_(choices.Path(key)) {
      if (path_.empty()) return;
      path_ += ".trying";
      file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
      if (file_ < 0) return;
      if (flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        allowed_ = false;
        LogPhase("library: kernels", 0, "another process times mpsgraph just now: " + path_);
        return;
      }
      struct stat info {};
      if (fstat(file_, &info) == 0) ended_ = static_cast<size_t>(info.st_size);
      // Not behind the end of a file that is no count: that may end the process (SIGXFSZ).
      if (ended_ >= kMostEnded) return;
      [[maybe_unused]] const ssize_t written = pwrite(file_, "x", 1, static_cast<off_t>(ended_));
    }
    ~Timing() {
      if (file_ < 0) return;
      if (allowed_) unlink(path_.c_str());
      close(file_);
    }
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;
    bool allowed() const { return allowed_; }
    size_t ended() const { return ended_; }  // processes that ended while they timed it

   private:
    std::string path_;
    int file_ = -1;
    size_t ended_ = 0;
    bool allowed_ = true;
  };

 private:
  static std::string Entry(const std::string& key, const Times& times) {
    char line[80];
    std::snprintf(line, sizeof line, "%a %a\n", times.library, times.kernels);
    const std::string text = key + line;
    return text + Hex(Hasher().Add(text).Finish()) + "\n";
  }

  // Empty: nothing is kept.
  std::string Path(const std::string& key) {
    const std::string folder = folder_.Open();
    return folder.empty() ? "" : folder + "/library-" + Hex(Hasher().Add(key).Finish()) + ".txt";
  }

  std::string CondemnationPath(const std::string& system) {
    const std::string folder = folder_.Open();
    return folder.empty() ? "" : folder + "/library-condemned-" + Hex(Hasher().Add(system).Finish()) + ".txt";
  }

  std::map<std::string, Times> known_;
  std::map<std::string, std::string> condemned_;  // by this process
  CacheFolder folder_;
};

// What this process knows, for all its programs. One at a time: measurements must not disturb one another.
struct Shared {
  std::mutex mutex;
  Choices choices;
  std::set<std::string> survived;  // descriptions that were tried
  std::set<std::string> measured;  // keys
};
Shared& TheShared() {
  static auto* const shared = new Shared;  // never freed: programs are loaded while the process exits
  return *shared;
}

class Chooser {
 public:
  Chooser(const Program& program, Device& device, Allocator& allocator, std::span<const PipelineRef> pipelines,
          std::span<const size_t> constant_offsets)
      : program_(program),
        device_(device),
        allocator_(allocator),
        pipelines_(pipelines),
        constant_offsets_(constant_offsets),
        calls_(program.library_ops.size()) {}

  std::vector<LibraryCallRef> Run() {
    const environment::Library choice = environment::LibraryChoice();
    if (choice == environment::Library::kKernels || calls_.empty() || !device_.has_library()) return std::move(calls_);
    std::vector<const Step*> steps;
    Collect(program_.body, steps);
    if (choice == environment::Library::kMpsgraph) {
      for (const Step* step : steps) {
        LibraryCallRef& call = calls_[step->library_op];
        call = device_.PrepareLibraryCall(OpOf(*step), IsWhole(*step));
        if (call != nullptr) LogPhase("library: mpsgraph", 0, Describe(OpOf(*step)));
      }
      return std::move(calls_);
    }
    const std::lock_guard lock(shared_.mutex);
    if (MayCall(steps)) {
      for (const Step* step : steps) Choose(*step);
    }
    return std::move(calls_);
  }

 private:
  static void Collect(const Sequence& sequence, std::vector<const Step*>& steps) {
    for (const Step& step : sequence) {
      if (step.kind == StepKind::kLibrary) {
        steps.push_back(&step);
      } else {
        for (const Sequence& body : step.bodies) Collect(body, steps);
      }
    }
  }

  const LibraryOp& OpOf(const Step& step) const { return program_.library_ops[step.library_op]; }

  std::string System() const { return device_.info().kind + "\n" + device_.info().platform_version + "\n"; }

  // False if the library is condemned. Calls that were never made here are tried in a child process.
  bool MayCall(std::span<const Step* const> steps) {
    if (const std::string why = shared_.choices.Condemned(System()); !why.empty()) {
      LogPhase("library: kernels", 0, "mpsgraph is not called: " + why);
      return false;
    }
    std::vector<Trial> trials;
    for (const Step* step : steps) {
      const Trial trial = {&OpOf(*step), IsWhole(*step)};
      if (!shared_.survived.contains(Name(trial)) && !shared_.choices.Find(Key(*step))) trials.push_back(trial);
    }
    if (trials.empty()) return true;
    const TrialOutcome outcome = TryInChild(trials);
    for (const Trial& trial : std::span(trials).first(outcome.survived)) shared_.survived.insert(Name(trial));
    if (outcome.condemned.empty()) return true;
    shared_.choices.Condemn(System(), outcome.condemned);
    return false;
  }

  bool IsWhole(uint32_t number) const {
    const Slot& slot = program_.slots[number];
    return slot.offset + (slot.kind == SlotKind::kConstant ? constant_offsets_[slot.index] : 0) == 0;
  }
  bool IsWhole(const Step& step) const {
    return std::ranges::all_of(step.slots, [this](uint32_t slot) { return IsWhole(slot); });
  }
  static std::string Name(const Trial& trial) { return Describe(*trial.op) + (trial.whole ? " whole" : ""); }

  void Choose(const Step& step) {
    const std::string key = Key(step);
    const std::optional<Times> remembered = shared_.choices.Find(key);
    if (!remembered && !shared_.survived.contains(Name({&OpOf(step), IsWhole(step)}))) return;
    std::optional<Times> times = remembered;
    LibraryCallRef& call = calls_[step.library_op];
    const bool anew = !remembered || (remembered->worth_measuring() && !shared_.measured.contains(key));
    if (anew || times->library_wins()) call = device_.PrepareLibraryCall(OpOf(step), IsWhole(step));
    if (anew && call != nullptr) {
      const Choices::Timing timing(shared_.choices, key);
      if (timing.ended() >= kMostEnded) {
        shared_.choices.Condemn(System(), Describe(OpOf(step)) + ": " + std::to_string(timing.ended()) +
                                              " processes ended while they timed it");
        call = nullptr;
        return;
      }
      if (timing.allowed()) {
        if (const auto found = TryToMeasure(*call, step, remembered ? kRepetitionsAnew : kRepetitions)) {
          times = found;
          shared_.choices.Add(key, *times);
          shared_.measured.insert(key);
        }
      }
    }
    if (!times || !times->library_wins()) call = nullptr;
    if (!times) return;
    LogPhase(call != nullptr ? "library: mpsgraph" : "library: kernels", 0,
             Describe(OpOf(step)) + " (" + Milliseconds(*times) + ")");
  }

  std::optional<Times> TryToMeasure(const LibraryCall& call, const Step& step, int repetitions) {
    try {
      return Measure(call, step, repetitions);
    } catch (const Error& error) {
      // Not remembered: memory, for one, may be there the next time.
      LogPhase("library: not timed", 0,
               Describe(program_.library_ops[step.library_op]) + ": the kernels run, because " + error.what());
      return std::nullopt;
    }
  }

  // A kernel's name is a hash of its text, so a better kernel gets a new chance.
  std::string Key(const Step& step) const {
    std::string key = "pjrt_metal library choice 1\n" + Describe(OpOf(step)) + "\n" + System();
    for (const Step& launch : step.bodies[0]) key += program_.kernels[launch.kernel].name + "\n";
    return key;
  }

  Times Measure(const LibraryCall& call, const Step& step, int repetitions) {
    std::map<uint32_t, AllocationRef> scratch;
    const auto binding = [&](uint32_t slot) -> Binding {
      AllocationRef& memory = scratch[slot];
      if (memory == nullptr) {
        memory = allocator_.Allocate(program_.slots[slot].bytes, "arrays for timing a library call");
        std::memset(memory->data(), kFiller, memory->size());
      }
      return {memory->device_allocation(), 0, program_.slots[slot].bytes};
    };
    const Binding arrays[] = {binding(step.slots[0]), binding(step.slots[1]), binding(step.slots[2])};
    const std::unique_ptr<Encoder> encoder = device_.NewEncoder();
    const auto run_library = [&] { encoder->Call(call, arrays); };
    const auto run_kernels = [&] {
      for (const Step& launch : step.bodies[0]) {
        std::vector<Binding> buffers;
        for (const uint32_t slot : launch.slots) buffers.push_back(binding(slot));
        encoder->Dispatch(*pipelines_[launch.kernel], buffers, launch.args, launch.grid);
      }
    };
    const auto timed = [&](const auto& run) {
      run();
      return encoder->SyncAndTime();
    };
    timed(run_library);
    timed(run_kernels);
    constexpr double kNever = std::numeric_limits<double>::infinity();
    Times best{kNever, kNever};
    for (int i = 0; i < repetitions; ++i) {
      best.library = std::min(best.library, timed(run_library));
      best.kernels = std::min(best.kernels, timed(run_kernels));
    }
    return best;
  }

  const Program& program_;
  Device& device_;
  Allocator& allocator_;
  std::span<const PipelineRef> pipelines_;
  std::span<const size_t> constant_offsets_;
  std::vector<LibraryCallRef> calls_;
  Shared& shared_ = TheShared();
};

}  // namespace

std::vector<LibraryCallRef> ChooseLibraryCalls(const Program& program, Device& device, Allocator& allocator,
                                               std::span<const PipelineRef> pipelines,
                                               std::span<const size_t> constant_offsets) {
  return Chooser(program, device, allocator, pipelines, constant_offsets).Run();
}

}  // namespace pjrt_metal
