#include "csrc/runtime/library_trial.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <vector>

#include "csrc/runtime/allocator.h"
#include "csrc/runtime/device.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/log.h"
#include "csrc/runtime/process.h"

namespace pjrt_metal {
namespace {

// Starting Python and loading MPSGraph takes a second, compiling a graph a tenth.
constexpr uint32_t kPatience = 120;  // seconds
// In front of an array that does not begin where its buffer does.
constexpr size_t kOffset = 256;

std::mutex command_mutex;
std::string trial_command;

// --- The list of calls, one a line of numbers ---

template <typename Number>
void Write(std::ostream& out, const std::vector<Number>& numbers) {
  out << ' ' << numbers.size();
  for (const Number number : numbers) out << ' ' << number;
}
template <typename Number>
void Read(std::istream& in, std::vector<Number>& numbers) {
  constexpr size_t kMost = 64;  // dimensions
  size_t count = 0;
  in >> count;
  if (count > kMost) in.setstate(std::ios::failbit);
  if (in) numbers.resize(count);
  for (Number& number : numbers) in >> number;
}

std::string Line(const Trial& trial) {
  const LibraryOp& op = *trial.op;
  std::ostringstream out;
  out << trial.whole << ' ' << static_cast<int>(op.kind) << ' ' << static_cast<int>(op.dtype) << ' ' << op.groups << ' '
      << static_cast<int>(op.data_layout) << ' ' << static_cast<int>(op.weights_layout);
  for (const auto number : op.stride) out << ' ' << number;
  for (const auto number : op.dilation) out << ' ' << number;
  for (const auto number : op.padding) out << ' ' << number;
  for (const LibraryView* view : op.views()) {
    Write(out, view->dims);
    Write(out, view->permutation);
    Write(out, view->shape);
  }
  return out.str();
}

// Throws InvalidArgument unless it is what Line wrote of a sound op.
LibraryOp OpOf(const std::string& line, bool& whole) {
  LibraryOp op{};
  std::istringstream in(line);
  int kind = 0, dtype = 0, data = 0, weights = 0;
  in >> whole >> kind >> dtype >> op.groups >> data >> weights;
  op.kind = static_cast<LibraryKind>(kind);
  op.dtype = static_cast<DType>(dtype);
  op.data_layout = static_cast<DataLayout>(data);
  op.weights_layout = static_cast<WeightsLayout>(weights);
  for (auto& number : op.stride) in >> number;
  for (auto& number : op.dilation) in >> number;
  for (auto& number : op.padding) in >> number;
  for (LibraryView* view : {&op.lhs, &op.rhs, &op.result}) {
    Read(in, view->dims);
    Read(in, view->permutation);
    Read(in, view->shape);
  }
  if (!in) throw InvalidArgument("a line of the list of library calls is cut short");
  if (const std::string problem = Problem(op); !problem.empty()) throw InvalidArgument(problem);
  return op;
}

// --- The child ---

std::vector<std::string> Command(const std::string& path) {
  std::vector<std::string> words;
  const std::lock_guard lock(command_mutex);
  std::istringstream lines(trial_command);
  for (std::string word; std::getline(lines, word);) words.push_back(word);
  if (!words.empty()) words.push_back(path);
  return words;
}

// Of an assertion or a wild pointer, and not of somebody who ends processes.
constexpr int kCrashes[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGSYS};
// The child's exit status is this and the signal's number: it ends by itself, so that macOS shows no dialog about it.
constexpr int kCrashed = 128;
bool IsCrash(int signal) { return std::ranges::find(kCrashes, signal) != std::end(kCrashes); }

constexpr const char* kTrying = "pjrt_metal trial: try ";
constexpr const char* kDone = "pjrt_metal trial: done ";

// How many the child began, and how many of those it ended; the last other line.
struct Progress {
  size_t begun = 0, done = 0;
  std::string other;
};
Progress Read(const std::string& said) {
  Progress progress;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kTrying)) {
      ++progress.begun;
    } else if (line.starts_with(kDone)) {
      ++progress.done;
    } else if (!line.empty()) {
      progress.other = line;
    }
  }
  return progress;
}

}  // namespace

void SetTrialCommand(std::string command) {
  const std::lock_guard lock(command_mutex);
  trial_command = std::move(command);
}

TrialOutcome TryInChild(std::span<const Trial> trials) {
  const auto start = std::chrono::steady_clock::now();
  TrialOutcome outcome;
  try {
    std::string list;
    for (const Trial& trial : trials) list += Line(trial) + "\n";
    const TemporaryFolder folder([&](const std::string& path) { return WriteFile(path + "/calls", list); });
    const std::vector<std::string> command = Command(folder.path() + "/calls");
    if (command.empty()) throw Error(Code::kUnavailable, "nobody has said how to make one");
    const std::string output = folder.path() + "/output";
    const ProcessResult child = RunProcess(command, output, kPatience);
    const Progress progress = Read(ReadFile(output).value_or(""));
    outcome.survived = std::min(progress.done, trials.size());
    const bool ended_it = child.timed_out || IsCrash(child.signal) || IsCrash(child.exit_status - kCrashed);
    const bool crashed = ended_it && progress.begun > progress.done;
    const std::string how = child.outcome + (progress.other.empty() ? "" : " (" + progress.other + ")");
    if (crashed) {
      const size_t number = std::min(outcome.survived, trials.size() - 1);
      outcome.condemned = Describe(*trials[number].op) + ": a process that tried it: " + how;
    } else if (outcome.survived < trials.size()) {
      LogPhase("library: not tried", 0, "the process that tried " + std::to_string(trials.size()) + " calls: " + how);
    }
  } catch (const Error& error) {
    LogPhase("library: not tried", 0, std::string("no process to try calls in: ") + error.what());
  }
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  LogPhase("library: trial", elapsed.count(),
           std::to_string(outcome.survived) + " of " + std::to_string(trials.size()) + " calls");
  return outcome;
}

int RunTrials(const char* path) {
  for (const int crash : kCrashes) std::signal(crash, [](int signal) { _exit(kCrashed + signal); });
  try {
    const std::optional<std::string> list = ReadFile(path);
    if (!list) throw InvalidArgument(std::string("no file ") + path);
    const std::vector<std::unique_ptr<Device>> devices = DiscoverDevices();
    Device& device = *devices.front();
    std::istringstream lines(*list);
    size_t number = 0;
    for (std::string line; std::getline(lines, line); ++number) {
      bool whole = false;
      const LibraryOp op = OpOf(line, whole);
      std::printf("%s%zu\n", kTrying, number);
      std::fflush(stdout);
      if (const LibraryCallRef call = device.PrepareLibraryCall(op, whole)) {
        std::vector<AllocationRef> memory;
        std::vector<Binding> arrays;
        for (const LibraryView* view : op.views()) {
          const size_t bytes = Bytes(op, *view), offset = whole ? 0 : kOffset;
          memory.push_back(device.Allocate(offset + bytes));
          std::memset(memory.back()->data(), 0, memory.back()->size());
          arrays.push_back({memory.back().get(), offset, bytes});
        }
        const std::unique_ptr<Encoder> encoder = device.NewEncoder();
        encoder->Call(*call, arrays);
        encoder->Sync();
      }
      std::printf("%s%zu\n", kDone, number);
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace pjrt_metal
