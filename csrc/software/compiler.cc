#include "csrc/software/compiler.h"

#ifdef __linux__
#include <link.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>

#include "csrc/runtime/environment.h"
#include "csrc/runtime/error.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/process.h"

namespace pjrt_metal::software {
namespace {

constexpr const char* kFlags[] = {"-std=c++17", "-O3",
#if defined(__x86_64__)
                                  // Registers as wide as the target's vector_bytes says: by default compilers use half
                                  // of AVX-512.
                                  "-march=native", "-mprefer-vector-width=512",
#else
                                  "-mcpu=native",
#endif
                                  // Metal's arithmetic: integers wrap, char has a sign, nothing traps; no
                                  // reassociation. A product and a sum fuse only where the text says fma: a value that
                                  // two kernels compute is then the same in both.
                                  "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fsigned-char",
                                  "-fno-strict-aliasing", "-fopenmp-simd",
                                  // [[buffer(0)]] and its like are attributes that no C++ compiler knows; the suffixes
                                  // h and bf of literals are reserved, which clang takes for an error.
                                  "-w", "-Wno-attributes", "-Wno-reserved-user-defined-literal", "-shared", "-g0",
                                  "-fPIC", "-fvisibility=hidden"};

#ifdef __linux__
// Without the C++ library and the start of a program, of which kernels need nothing, linking takes half as long; libm
// is for functions of double and comes after the source.
constexpr const char* kLinkFlags[] = {
    "-Wl,-z,noseparate-code", "-Wl,-z,norelro", "-nostdlib", "-Wl,--push-state,--no-as-needed", "-lm",
    "-Wl,--pop-state"};
// Its linker knows its own options only.
bool IsZig(const std::vector<std::string>& compiler) {
  return std::find(compiler.begin(), compiler.end(), "ziglang") != compiler.end();
}
#endif

constexpr int kMessageLines = 30;
constexpr uint32_t kQuickSeconds = 60;  // for programs that answer at once

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// The interpreter this process runs, if it is Python and was started by its path, else the one on
// PATH.
std::string FindPython() {
  const std::string command = ReadFile("/proc/self/cmdline").value_or("");
  const std::string program = command.substr(0, command.find('\0'));
  const size_t slash = program.rfind('/');
  if (slash != std::string::npos && program.compare(slash + 1, 6, "python") == 0) {
    if (const std::string found = FindProgram(program); !found.empty()) return found;
  }
  return FindProgram("python3");
}

std::string FirstLines(const std::string& text) {
  size_t end = 0;
  for (int line = 0; line < kMessageLines; ++line) {
    end = text.find('\n', end);
    if (end == std::string::npos) return text;
    ++end;
  }
  return end < text.size() ? text.substr(0, end) + "...\n" : text;
}

// An ELF file whose parts are not all there: loading it would end the process (SIGBUS). What else is wrong with a
// library, the loader says.
bool IsCutShort(const std::string& path) {
#ifdef __linux__
  const std::string file = ReadFile(path).value_or("");
  ElfW(Ehdr) header;
  if (!file.starts_with(ELFMAG) || file.size() < sizeof header) return false;
  std::memcpy(&header, file.data(), sizeof header);
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part;
    const uint64_t at = header.e_phoff + i * sizeof part;
    if (at > file.size() || sizeof part > file.size() - at) return true;
    std::memcpy(&part, file.data() + at, sizeof part);
    if (part.p_offset > file.size() || part.p_filesz > file.size() - part.p_offset) return true;
  }
#else
  (void)path;
#endif
  return false;
}

// On a Mac without the command line tools, /usr/bin has programs of the compilers' names that open a dialog and fail.
bool IsThere(const std::string& compiler) {
#ifdef __APPLE__
  if (compiler.starts_with("/usr/bin/"))
    return RunProcess({"/usr/bin/xcode-select", "-p"}, "/dev/null", kQuickSeconds).succeeded;
#endif
  return !compiler.empty();
}

}  // namespace

std::span<const char* const> CompilerFlags() { return kFlags; }

std::vector<std::string> FindCompiler(const std::string& wanted) {
  if (!wanted.empty()) {
    // A path may hold spaces; otherwise spaces separate the compiler from options or come after a
    // launcher.
    if (const std::string found = FindProgram(wanted); !found.empty()) return {found};
    std::vector<std::string> words = Words(wanted);
    const std::string found = words.empty() ? "" : FindProgram(words[0]);
    if (found.empty()) {
      throw FailedPrecondition("PJRT_METAL_CXX=" + wanted +
                               ": there is no such program; set it to a C++ compiler (clang++ or g++)");
    }
    words[0] = found;
    return words;
  }
  for (const char* name : {"clang++", "g++", "c++"}) {
    if (const std::string found = FindProgram(name); IsThere(found)) return {found};
  }
  const std::string python = FindPython();
  if (!python.empty() && RunProcess({python, "-c", "import ziglang"}, "/dev/null", kQuickSeconds).succeeded) {
    // Not its "c++", which first builds a C++ library that kernels do not use: a minute.
    return {python, "-m", "ziglang", "cc", "-x", "c++"};
  }
  throw FailedPrecondition(
      "software Metal needs a C++ compiler and found none (clang++, g++, c++ on PATH, or Python's "
      "ziglang package). "
      "Install one with `pip install pjrt-metal[software]` or your system's package manager, or "
      "set PJRT_METAL_CXX "
      "to a compiler's path.");
}

void CompileLibrary(const std::vector<std::string>& compiler, std::span<const char* const> flags,
                    const std::string& include, const std::string& source, const std::string& output) {
  std::vector<std::string> command = compiler;
  command.insert(command.end(), std::begin(kFlags), std::end(kFlags));
  command.insert(command.end(), flags.begin(), flags.end());
#ifdef __linux__
  // A process has some 65,000 maps: with these a library takes three, not five.
  if (!IsZig(compiler)) command.insert(command.end(), std::begin(kLinkFlags), std::end(kLinkFlags));
#endif
  for (const std::string& word : {"-I" + include, std::string("-o"), output, source}) command.push_back(word);
  const std::string log = output + ".log";
  const ProcessResult result = RunProcess(command, log, environment::CxxSeconds());
  if (result.start_error != 0) {
    throw FailedPrecondition("the C++ compiler " + compiler[0] + " could not be started: " + result.outcome +
                             "; set PJRT_METAL_CXX to another one");
  }
  if (result.succeeded && access(output.c_str(), R_OK) == 0) {
    if (IsCutShort(output)) throw Internal("the C++ compiler " + compiler[0] + " wrote half a library: " + output);
    return;
  }
  throw Internal("compiling kernels for software Metal failed (" + result.outcome + "):\n" +
                 FirstLines(ReadFile(log).value_or("(its messages could not be read)\n")) +
                 "repeat with: " + ShellText(command) + "\nsource: " + source +
                 "\nPJRT_METAL_CXX chooses another compiler, PJRT_METAL_CXX_SECONDS how long it may take");
}

}  // namespace pjrt_metal::software
