#include "csrc/runtime/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>

#if defined(__APPLE__)
#include <crt_externs.h>  // dynamic libraries there have no `environ`
#define environ (*_NSGetEnviron())
#else
extern char** environ;
#endif

namespace pjrt_metal {
namespace {

bool IsProgram(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// False if the process does not end within `seconds`. It holds the pipe's other end; so do those that it leaves behind
// (a compiler launcher's server), and therefore it is asked for as well.
bool EndsWithin(pid_t process, int pipe, uint32_t seconds) {
  constexpr int kAskMilliseconds = 200;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd ended = {pipe, POLLIN, 0};
    if (poll(&ended, 1, kAskMilliseconds) > 0) return true;
    siginfo_t info = {};
    if (waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == process) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return IsProgram(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + (folder.empty() ? "./" : "/") + name;
    if (IsProgram(program)) return program;
  }
  return "";
}

ProcessResult RunProcess(const std::vector<std::string>& command, const std::string& output, uint32_t seconds) {
  int life[2] = {-1, -1};
  if (pipe(life) != 0) {
    ProcessResult result;
    result.start_error = errno;
    result.outcome = std::strerror(errno);
    return result;
  }
  for (const int end : life) fcntl(end, F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&files, life[1], STDERR_FILENO + 1);  // the copy is not closed when it starts
  // Python ignores SIGPIPE, and threads of ours may block signals: neither is for the child.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t process = 0;
  ProcessResult result;
  result.start_error = posix_spawn(&process, words[0], &files, &attributes, words.data(), environ);
  close(life[1]);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (result.start_error != 0) {
    close(life[0]);
    result.outcome = std::strerror(result.start_error);
    return result;
  }
  const bool in_time = EndsWithin(process, life[0], seconds);
  close(life[0]);
  if (!in_time) kill(process, SIGKILL);
  int status = 0;
  pid_t waited;
  do {
    waited = waitpid(process, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (!in_time) {
    result.timed_out = true;
    result.outcome = "killed after " + std::to_string(seconds) + " s";
  } else if (waited < 0) {
    // A host program that ignores SIGCHLD or reaps every child takes the status away. By now the
    // child has ended; whether it did its work shows in what it has written.
    result.succeeded = true;
    result.outcome = "exit status unknown";
  } else if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
    result.outcome = "killed by signal " + std::to_string(WTERMSIG(status));
  } else {
    result.exit_status = WEXITSTATUS(status);
    result.succeeded = result.exit_status == 0;
    result.outcome = "exit status " + std::to_string(WEXITSTATUS(status));
  }
  return result;
}

std::string ShellText(const std::vector<std::string>& command) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%";
  std::string text;
  for (const std::string& word : command) {
    if (!text.empty()) text += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      text += word;
      continue;
    }
    text += '\'';
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += '\'';
  }
  return text;
}

}  // namespace pjrt_metal
