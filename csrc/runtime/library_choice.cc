#include "csrc/runtime/library_choice.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>

#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/environment.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/hash.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal {
namespace {

// Each is run once to warm up (first use compiles and pages in) and then this often, in turns, so that a clock that
// rises or falls meets both; the fastest counts.
constexpr int kRepetitions = 5;
// Bytes of operands while timing: 0.01 as f32 and bf16, 1.06 as f16. No NaN, no denormal.
constexpr int kFiller = 0x3c;

struct Times {
  double library, kernels;  // seconds
  bool library_wins() const { return library < kernels; }
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
        std::sscanf(file->c_str() + key.size(), "%la %la\n", &times.library, &times.kernels) != 2 ||
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

  // MPSGraph asserts: what it does not like ends the process. A file says what is being tried, so that no other process
  // tries it meanwhile, nor a later one if this one does not live to delete it.
  class Trial {
   public:
    Trial(Choices& choices, const std::string& key) : path_(choices.Path(key)) {
      if (path_.empty()) return;
      path_ += ".trying";
      allowed_ = access(path_.c_str(), F_OK) != 0;
      if (allowed_) {
        ReplaceFile(choices.folder_.Open(), path_, "");
      } else {
        LogPhase("library: kernels", 0, "a process that tried mpsgraph has not ended the trial: " + path_);
      }
    }
    ~Trial() {
      if (allowed_ && !path_.empty()) unlink(path_.c_str());
    }
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;
    bool allowed() const { return allowed_; }

   private:
    std::string path_;
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

  std::map<std::string, Times> known_;
  CacheFolder folder_;
};

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
    if (choice != environment::Library::kKernels && !calls_.empty()) Walk(program_.body, choice);
    return std::move(calls_);
  }

 private:
  void Walk(const Sequence& sequence, environment::Library choice) {
    for (const Step& step : sequence) {
      if (step.kind == StepKind::kLibrary) {
        Choose(step, choice);
      } else {
        for (const Sequence& body : step.bodies) Walk(body, choice);
      }
    }
  }

  bool IsWhole(uint32_t number) const {
    const Slot& slot = program_.slots[number];
    return slot.offset + (slot.kind == SlotKind::kConstant ? constant_offsets_[slot.index] : 0) == 0;
  }

  void Choose(const Step& step, environment::Library choice) {
    const LibraryOp& op = program_.library_ops[step.library_op];
    const bool whole = std::ranges::all_of(step.slots, [this](uint32_t slot) { return IsWhole(slot); });
    LibraryCallRef& call = calls_[step.library_op];
    if (choice == environment::Library::kMpsgraph) {
      call = device_.PrepareLibraryCall(op, whole);
      if (call != nullptr) LogPhase("library: mpsgraph", 0, Describe(op));
      return;
    }
    // One at a time: measurements must not disturb one another.
    static std::mutex mutex;
    static Choices choices;
    const std::lock_guard lock(mutex);
    const std::string key = Key(op, step);
    std::optional<Times> times = choices.Find(key);
    if (!times) {
      const Choices::Trial trial(choices, key);
      if (!trial.allowed()) return;
      call = device_.PrepareLibraryCall(op, whole);
      if (call != nullptr) times = TryToMeasure(*call, step);
      if (times) choices.Add(key, *times);
    } else if (times->library_wins()) {
      call = device_.PrepareLibraryCall(op, whole);
    }
    if (!times || !times->library_wins()) call = nullptr;
    if (!times) return;
    LogPhase(call != nullptr ? "library: mpsgraph" : "library: kernels", 0,
             Describe(op) + " (" + Milliseconds(*times) + ")");
  }

  std::optional<Times> TryToMeasure(const LibraryCall& call, const Step& step) {
    try {
      return Measure(call, step);
    } catch (const Error& error) {
      // Not remembered: memory, for one, may be there the next time.
      LogPhase("library: not timed", 0,
               Describe(program_.library_ops[step.library_op]) + ": the kernels run, because " + error.what());
      return std::nullopt;
    }
  }

  // A kernel's name is a hash of its text, so a better kernel gets a new chance.
  std::string Key(const LibraryOp& op, const Step& step) const {
    std::string key = "pjrt_metal library choice 1\n" + Describe(op) + "\n" + device_.info().kind + "\n" +
                      device_.info().platform_version + "\n";
    for (const Step& launch : step.bodies[0]) key += program_.kernels[launch.kernel].name + "\n";
    return key;
  }

  Times Measure(const LibraryCall& call, const Step& step) {
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
    for (int i = 0; i < kRepetitions; ++i) {
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
};

}  // namespace

std::vector<LibraryCallRef> ChooseLibraryCalls(const Program& program, Device& device, Allocator& allocator,
                                               std::span<const PipelineRef> pipelines,
                                               std::span<const size_t> constant_offsets) {
  return Chooser(program, device, allocator, pipelines, constant_offsets).Run();
}

}  // namespace pjrt_metal
