#include "csrc/software/kernel_unit.h"

#include <algorithm>

namespace pjrt_metal::software {
namespace {

// Pointer and Args become whatever type the kernel's parameter has, so no text is parsed here.
constexpr std::string_view kPrologue = R"(#include <metal_stdlib>
namespace software {
struct Pointer {
  void* address;
  template <class T>
  operator T*() const { return static_cast<T*>(address); }
};
template <class T>
constexpr bool is_pointer = false;
template <class T>
constexpr bool is_pointer<T*> = true;
struct Args {
  const void* address;
  template <class T, class = enable_if_t<!is_pointer<T>>>
  operator const T&() const { return *static_cast<const T*>(address); }
  template <class T>
  operator const T*() const { return static_cast<const T*>(address); }
};
}  // namespace software
)";

// One thread a threadgroup: a threadgroup's position is its thread's.
std::string Argument(ParamKind kind, size_t& buffers) {
  switch (kind) {
    case ParamKind::kInput:
    case ParamKind::kOutput:
      return "buffer" + std::to_string(buffers++);
    case ParamKind::kArgs:
      return "arguments";
    case ParamKind::kThreadPositionInGrid:
    case ParamKind::kThreadgroupPositionInGrid:
      return "position";
    case ParamKind::kThreadPositionInThreadgroup:
      return "uint3(0u)";
    case ParamKind::kThreadIndexInSimdgroup:
    case ParamKind::kSimdgroupIndexInThreadgroup:
      return "0u";
    case ParamKind::kThreadsPerThreadgroup:
      return "uint3(1u)";
    case ParamKind::kThreadgroupsPerGrid:
      return "threads";
  }
  throw InvalidArgument("kernel parameter kind " + std::to_string(static_cast<int>(kind)) + " is unknown");
}

bool IsIdentifier(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

std::string_view UnitPrologue() { return kPrologue; }

const Dialect& FastDialect() {
  static const Dialect dialect = {kPrologue, KernelText, {}};
  return dialect;
}

std::string RunSymbol(const KernelSource& kernel) { return kernel.name + "_run"; }

void CheckKernelName(const KernelSource& kernel) {
  if (!IsIdentifier(kernel.name)) throw InvalidArgument("kernel name \"" + kernel.name + "\" is no identifier");
}

std::string KernelText(const KernelSource& kernel) {
  CheckKernelName(kernel);
  std::string arguments, declarations;
  size_t buffers = 0;
  for (const ParamKind kind : kernel.params) {
    if (!arguments.empty()) arguments += ", ";
    arguments += Argument(kind, buffers);
  }
  // Read before the loop: the kernel's stores might change buffers[] for all the compiler knows.
  for (size_t i = 0; i < buffers; ++i) {
    const std::string number = std::to_string(i);
    declarations += "  const software::Pointer buffer" + number + "{buffers[" + number + "]};\n";
  }
  return kernel.source + "\nextern \"C\" __attribute__((visibility(\"default\"))) void " + RunSymbol(kernel) +
         "(\n    void* const* buffers, const void* args, const uint* grid, const uint* row,"
         " uint begin, uint end) {\n" +
         declarations +
         // Never true. GCC before 14.3 may place aligned vectors of a function that calls nothing at addresses that are
         // not aligned (its PR 109780: it drops the stack's alignment, looking at accesses by the stack pointer alone).
         "  if (end < begin) __builtin_abort();\n"
         "  const software::Args arguments{args};\n"
         "  const uint3 threads(grid[0], grid[1], grid[2]);\n"
         "  for (uint x = begin; x < end; ++x) {\n"
         "    const uint3 position(x, row[0], row[1]);\n    " +
         kernel.name + "(" + arguments + ");\n  }\n}\n";
}

}  // namespace pjrt_metal::software
