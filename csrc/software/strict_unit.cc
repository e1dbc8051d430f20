#include "csrc/software/strict_unit.h"

#include <algorithm>
#include <cctype>
#include <regex>

#include "csrc/software/kernel_unit.h"

namespace pjrt_metal::software {
namespace {

constexpr std::string_view kPrologueBegin = "#define SOFTWARE_STRICT 1\n";
constexpr std::string_view kCheckedPrologueBegin = "#define SOFTWARE_STRICT 1\n#define SOFTWARE_CHECKED 1\n";

// Accesses stay as the text has them, and are announced (strict_runtime.h). The announcements' receiver is in the unit
// itself, not in a library. A variable that was never set holds no zero by chance.
#define STRICT_FLAGS \
  "-O1", "-fsanitize=thread,alignment,bounds", "-fno-exceptions", "-nodefaultlibs", "-ftrivial-auto-var-init=pattern"
constexpr const char* kFlags[] = {STRICT_FLAGS};
// What kernels tell the compiler of their loops is not believed.
constexpr const char* kCheckedFlags[] = {STRICT_FLAGS, "-fno-openmp-simd"};
#undef STRICT_FLAGS

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string Vector(int first) {
  std::string text = "uint3(p[" + std::to_string(first) + "], p[";
  return text + std::to_string(first + 1) + "], p[" + std::to_string(first + 2) + "])";
}

// Where strict_machine.h's kPositionWords has each.
std::string Argument(ParamKind kind, size_t& buffers) {
  switch (kind) {
    case ParamKind::kInput:
    case ParamKind::kOutput:
      return "software::Pointer{buffers[" + std::to_string(buffers++) + "]}";
    case ParamKind::kArgs:
      return "software::Args{args}";
    case ParamKind::kThreadPositionInGrid:
      return Vector(0);
    case ParamKind::kThreadgroupPositionInGrid:
      return Vector(3);
    case ParamKind::kThreadPositionInThreadgroup:
      return Vector(6);
    case ParamKind::kThreadIndexInSimdgroup:
      return "p[9]";
    case ParamKind::kSimdgroupIndexInThreadgroup:
      return "p[10]";
    case ParamKind::kThreadsPerThreadgroup:
      return Vector(11);
    case ParamKind::kThreadgroupsPerGrid:
      return Vector(14);
  }
  throw InvalidArgument("kernel parameter kind " + std::to_string(static_cast<int>(kind)) + " is unknown");
}

// The position after a comment, string or character that begins at `i`; `i` if none does.
size_t SkipText(const std::string& s, size_t i) {
  const auto end = [&](size_t found, size_t length) { return found == std::string::npos ? s.size() : found + length; };
  if (s.compare(i, 2, "//") == 0) return end(s.find('\n', i), 0);
  if (s.compare(i, 2, "/*") == 0) return end(s.find("*/", i + 2), 2);
  if (s[i] != '"' && s[i] != '\'') return i;
  for (size_t j = i + 1; j < s.size(); ++j) {
    if (s[j] == '\\')
      ++j;
    else if (s[j] == s[i])
      return j + 1;
  }
  return s.size();
}

std::string Trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return std::string(text);
}

// "float tile[8][9], flags[2]" as declarations of references, on one line, to what `function` gives.
std::string Declarations(const std::string& declaration, const std::string& function) {
  // The type ends where the first declarator's name begins.
  const size_t dims = std::min(declaration.find_first_of("[,"), declaration.size());
  size_t name_end = dims;
  while (name_end > 0 && !IsWord(declaration[name_end - 1])) --name_end;
  size_t name_begin = name_end;
  while (name_begin > 0 && IsWord(declaration[name_begin - 1])) --name_begin;
  const std::string type = Trim(std::string_view(declaration).substr(0, name_begin));
  std::string result;
  size_t begin = name_begin;
  int depth = 0;
  for (size_t i = name_begin; i <= declaration.size(); ++i) {
    const char c = i < declaration.size() ? declaration[i] : ',';
    depth += c == '[' || c == '(' ? 1 : c == ']' || c == ')' ? -1 : 0;
    if (c != ',' || depth > 0) continue;
    const std::string declarator = Trim(std::string_view(declaration).substr(begin, i - begin));
    const size_t open = std::min(declarator.find('['), declarator.size());
    const std::string name = Trim(declarator.substr(0, open)), array = declarator.substr(open);
    result += (result.empty() ? "" : " ") + type + " (&" + name + ")" + array + " = *static_cast<" + type + " (*)" +
              array + ">(software::" + function + "(\"" + name + "\", sizeof(" + type + array + "), alignof(" + type +
              "), __LINE__));";
    begin = i + 1;
  }
  return result;
}

}  // namespace

std::string_view StrictPrologue() {
  static const std::string prologue = std::string(kPrologueBegin) + std::string(UnitPrologue());
  return prologue;
}

std::span<const char* const> StrictFlags() { return kFlags; }

std::string_view CheckedPrologue() {
  static const std::string prologue = std::string(kCheckedPrologueBegin) + std::string(UnitPrologue());
  return prologue;
}

std::span<const char* const> CheckedFlags() { return kCheckedFlags; }

std::string RewriteThreadgroupMemory(const std::string& source) {
  constexpr std::string_view kWord = "threadgroup";
  std::string result;
  int parentheses = 0;
  for (size_t i = 0; i < source.size();) {
    if (const size_t end = SkipText(source, i); end > i) {
      result.append(source, i, end - i);
      i = end;
      continue;
    }
    const char c = source[i];
    parentheses += c == '(' ? 1 : c == ')' ? -1 : 0;
    const bool word = parentheses == 0 && source.compare(i, kWord.size(), kWord) == 0 &&
                      (i == 0 || !IsWord(source[i - 1])) && i + kWord.size() < source.size() &&
                      std::isspace(static_cast<unsigned char>(source[i + kWord.size()])) != 0;
    const size_t end = word ? source.find(';', i) : std::string::npos;
    const std::string declaration =
        end == std::string::npos ? "" : source.substr(i + kWord.size(), end - i - kWord.size());
    // A pointer to threadgroup memory is an ordinary variable.
    if (declaration.empty() || declaration.find_first_of("*&={") != std::string::npos) {
      result += source[i++];
      continue;
    }
    result += Declarations(declaration, "threadgroup_memory");
    for (const char d : declaration) {
      if (d == '\n') result += '\n';
    }
    i = end + 1;
  }
  return result;
}

std::vector<std::string> BufferNames(const KernelSource& kernel) {
  std::vector<std::string> names;
  size_t at = 0;
  for (const ParamKind kind : kernel.params) {
    if (kind > ParamKind::kArgs) continue;
    at = kernel.source.find("[[buffer(", at);
    std::string name;
    if (at != std::string::npos) {
      size_t end = at;
      while (end > 0 && !IsWord(kernel.source[end - 1])) --end;
      size_t begin = end;
      while (begin > 0 && IsWord(kernel.source[begin - 1])) --begin;
      name = kernel.source.substr(begin, end - begin);
      ++at;
    }
    if (kind != ParamKind::kArgs) names.push_back(name);
  }
  return names;
}

std::string RewriteThreadArrays(const std::string& source) {
  // The type and the name, or nothing: "const float x = in0[3];" declares no array.
  static const std::regex kArray(R"(^(\s*)(?:alignas\(\d+\) )?(\w+ \w+(?:\[\d+\])+);$)");
  std::string result;
  for (size_t begin = 0; begin < source.size();) {
    const size_t end = std::min(source.find('\n', begin), source.size());
    const std::string line = source.substr(begin, end - begin);
    std::smatch found;
    const bool array = std::regex_match(line, found, kArray) && found[2].str().rfind("return ", 0) != 0;
    result += array ? found[1].str() + Declarations(found[2], "thread_memory") : line;
    if (end < source.size()) result += '\n';
    begin = end + 1;
  }
  return result;
}

namespace {

// The kernel's text and a StrictFunction that calls it.
std::string KernelAndCaller(const KernelSource& kernel, const std::string& text) {
  CheckKernelName(kernel);
  std::string arguments;
  size_t buffers = 0;
  for (const ParamKind kind : kernel.params) {
    if (!arguments.empty()) arguments += ", ";
    arguments += Argument(kind, buffers);
  }
  return "\n#line 1 \"" + kernel.name + ".metal\"\n" + text +
         "\nextern \"C\" __attribute__((visibility(\"default\"), no_sanitize(\"thread\"))) void " + RunSymbol(kernel) +
         "(\n    const software::StrictRuntime* runtime, void* const* buffers, const void* args, const uint* p) {\n"
         "  software::runtime = runtime;\n  " +
         kernel.name + "(" + arguments + ");\n}\n";
}

}  // namespace

std::string StrictKernelText(const KernelSource& kernel) {
  return KernelAndCaller(kernel, RewriteThreadgroupMemory(kernel.source));
}

std::string CheckedKernelText(const KernelSource& kernel) {
  return KernelAndCaller(kernel, RewriteThreadArrays(kernel.source));
}

}  // namespace pjrt_metal::software
