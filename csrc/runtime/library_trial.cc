#include "csrc/runtime/library_trial.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
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

extern "C" char** environ;

namespace pjrt_metal {
namespace {

// Starting Python and loading MPSGraph takes a second, compiling a graph a tenth.
constexpr std::chrono::seconds kPatience(120);
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

struct Child {
  pid_t process = -1;
  int output = -1;  // what it says
};

// Throws Unavailable.
Child Start(const std::string& path) {
  std::vector<std::string> words;
  {
    const std::lock_guard lock(command_mutex);
    std::istringstream lines(trial_command);
    for (std::string word; std::getline(lines, word);) words.push_back(word);
  }
  if (words.empty()) throw Error(Code::kUnavailable, "nobody has said how to make a child process");
  words.push_back(path);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe(ends) != 0) throw Error(Code::kUnavailable, std::strerror(errno));
  for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  Child child;
  const int error = posix_spawn(&child.process, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    throw Error(Code::kUnavailable, words[0] + ": " + std::strerror(error));
  }
  child.output = ends[0];
  return child;
}

// All that it says until it ends; nothing if it takes too long.
std::optional<std::string> Listen(int output) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::string said;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd ready = {output, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    char bytes[4096];
    const ssize_t count = read(output, bytes, sizeof bytes);
    if (count == 0 || (count < 0 && errno != EINTR)) return said;
    if (count > 0) said.append(bytes, static_cast<size_t>(count));
  }
}

// Of an assertion or a wild pointer, and not of somebody who ends processes.
bool IsCrash(int signal) {
  for (const int crash : {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE, SIGSYS}) {
    if (signal == crash) return true;
  }
  return false;
}

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
    const Child child = Start(folder.path() + "/calls");
    const std::optional<std::string> said = Listen(child.output);
    close(child.output);
    if (!said) kill(child.process, SIGKILL);
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(child.process, &status, 0)) < 0 && errno == EINTR) {
    }
    const Progress progress = Read(said.value_or(""));
    outcome.survived = std::min(progress.done, trials.size());
    std::string how;
    bool crashed = false;
    if (!said) {
      how = "did not end in " + std::to_string(kPatience.count()) + " s";
      crashed = true;
    } else if (ended == child.process && WIFSIGNALED(status)) {
      how = "ended by signal " + std::to_string(WTERMSIG(status)) + " (" + progress.other + ")";
      crashed = IsCrash(WTERMSIG(status)) && progress.begun > progress.done;
    } else if (outcome.survived < trials.size()) {
      how = "ended early (" + progress.other + ")";
    }
    if (crashed) {
      const size_t number = std::min(outcome.survived, trials.size() - 1);
      outcome.condemned = Describe(*trials[number].op) + ": a process that tried it " + how;
    } else if (!how.empty()) {
      LogPhase("library: not tried", 0, "the process that tried " + std::to_string(trials.size()) + " calls " + how);
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
