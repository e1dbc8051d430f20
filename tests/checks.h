// C++ test programs: named checks, run one a process by the pytest file beside them.
#pragma once

#include <cstdio>
#include <exception>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>

#define EXPECT(condition)                                                                           \
  do {                                                                                              \
    if (!(condition)) throw std::logic_error("line " + std::to_string(__LINE__) + ": " #condition); \
  } while (0)

namespace pjrt_metal {

struct Check {
  const char* name;
  void (*run)();
};

// Runs the check called `name`; returns the process's exit status.
inline int RunCheck(const std::string& name, std::initializer_list<std::span<const Check>> lists) {
  for (const std::span<const Check> checks : lists) {
    for (const Check& check : checks) {
      if (name != check.name) continue;
      try {
        check.run();
        return 0;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", check.name, error.what());
        return 1;
      }
    }
  }
  std::fprintf(stderr, "no check %s\n", name.c_str());
  return 2;
}

}  // namespace pjrt_metal
