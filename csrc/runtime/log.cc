#include "csrc/runtime/log.h"

#include <cstdio>

#include "csrc/runtime/environment.h"

namespace pjrt_metal {

bool LogEnabled() {
  static const bool enabled = environment::Log();
  return enabled;
}

void Warn(const std::string& text) { std::fprintf(stderr, "pjrt_metal: %s\n", text.c_str()); }

void LogPhase(const char* phase, double milliseconds, const std::string& detail) {
  if (!LogEnabled()) return;
  std::fprintf(stderr, "pjrt_metal: %-28s %9.3f ms%s%s\n", phase, milliseconds, detail.empty() ? "" : "  ",
               detail.c_str());
}

}  // namespace pjrt_metal
