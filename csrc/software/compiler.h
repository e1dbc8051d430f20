// The host's C++ compiler: which one, with which options.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace pjrt_metal::software {

// Options that every compiler gets, part of the cache's keys.
std::span<const char* const> CompilerFlags();

// The first words of the compiler's command: `wanted` (PJRT_METAL_CXX) unless empty, else clang++,
// g++ or c++ on PATH, else Python's ziglang package. Throws FailedPrecondition.
std::vector<std::string> FindCompiler(const std::string& wanted);

// Makes the shared library `output` of `source` with CompilerFlags, then `flags`; `<output>.log` receives the
// compiler's messages. Throws Internal with those messages, the command and the source's path; FailedPrecondition if
// the compiler cannot be started.
void CompileLibrary(const std::vector<std::string>& compiler, std::span<const char* const> flags,
                    const std::string& include, const std::string& source, const std::string& output);

}  // namespace pjrt_metal::software
