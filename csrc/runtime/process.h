// Other programs: finding and running them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pjrt_metal {

// The path of an executable file: `name` itself if it has a slash, else the first on PATH. Empty:
// there is none.
std::string FindProgram(const std::string& name);

struct ProcessResult {
  int start_error = 0;  // errno if it could not be started
  bool succeeded = false;
  bool timed_out = false;
  int signal = 0;       // that ended it, if nobody here sent it
  int exit_status = 0;  // if it ended by itself
  std::string outcome;  // "exit status 1", "killed by signal 9"
};

// Runs `command` (its first word a path) to its end, with no input and its output in the file
// `output`. After `seconds` it is killed, which its outcome says.
ProcessResult RunProcess(const std::vector<std::string>& command, const std::string& output, uint32_t seconds);

// The command as one would type it.
std::string ShellText(const std::vector<std::string>& command);

}  // namespace pjrt_metal
