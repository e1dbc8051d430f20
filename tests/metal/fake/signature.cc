#include "tests/metal/fake/signature.h"

#include <algorithm>
#include <cctype>

namespace pjrt_metal::fake {
namespace {

constexpr uint32_t kMaxBuffers = 31;

struct Builtin {
  const char *attribute, *type;
  ParamKind kind;
};
constexpr Builtin kBuiltins[] = {
    {"thread_position_in_grid", "uint3", ParamKind::kThreadPositionInGrid},
    {"threadgroup_position_in_grid", "uint3", ParamKind::kThreadgroupPositionInGrid},
    {"thread_position_in_threadgroup", "uint3", ParamKind::kThreadPositionInThreadgroup},
    {"thread_index_in_simdgroup", "uint", ParamKind::kThreadIndexInSimdgroup},
    {"simdgroup_index_in_threadgroup", "uint", ParamKind::kSimdgroupIndexInThreadgroup},
    {"threads_per_threadgroup", "uint3", ParamKind::kThreadsPerThreadgroup},
    {"threadgroups_per_grid", "uint3", ParamKind::kThreadgroupsPerGrid},
};

struct Scalar {
  const char* name;
  uint32_t bytes;
};
constexpr Scalar kScalars[] = {
    {"bool", 1},    {"char", 1},     {"uchar", 1},      {"short", 2},       {"ushort", 2},      {"half", 2},
    {"bfloat", 2},  {"int", 4},      {"uint", 4},       {"float", 4},       {"long", 8},        {"ulong", 8},
    {"int8_t", 1},  {"uint8_t", 1},  {"int16_t", 2},    {"uint16_t", 2},    {"int32_t", 4},     {"uint32_t", 4},
    {"int64_t", 8}, {"uint64_t", 8}, {"atomic_int", 4}, {"atomic_uint", 4}, {"atomic_float", 4}};

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

[[noreturn]] void Fail(const std::string& kernel, const std::string& parameter, const std::string& what) {
  throw InvalidArgument("program_source: error: kernel " + kernel + ", parameter '" + parameter + "': " + what);
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!IsWord(text[i])) continue;
    if (i == 0 || !IsWord(text[i - 1])) words.emplace_back();
    words.back() += text[i];
  }
  return words;
}

// Of a scalar or vector type (float, uint4); of a structure, which compilers check, 1.
uint32_t Alignment(std::string type) {
  uint32_t elements = 1;
  const auto is_scalar = [&](const Scalar& scalar) { return type == scalar.name; };
  const Scalar* scalar = std::find_if(std::begin(kScalars), std::end(kScalars), is_scalar);
  if (scalar == std::end(kScalars) && !type.empty() && type.back() >= '2' && type.back() <= '4') {
    elements = type.back() == '2' ? 2 : 4;  // three elements lie as four
    type.pop_back();
    scalar = std::find_if(std::begin(kScalars), std::end(kScalars), is_scalar);
  }
  return scalar == std::end(kScalars) ? 1 : scalar->bytes * elements;
}

Parameter Read(const std::string& kernel, const std::string& text) {
  const size_t begin = text.find("[["), end = text.find("]]");
  if (begin == std::string::npos || end == std::string::npos) Fail(kernel, text, "has no attribute");
  const std::string attribute = text.substr(begin + 2, end - begin - 2);
  std::vector<std::string> words = Words(text.substr(0, begin));
  const auto take = [&](const char* word) { return std::erase(words, word) > 0; };
  take("__restrict");
  take("restrict");
  const bool constant = take("constant"), device = take("device"), is_const = take("const");
  if (words.size() != 2) Fail(kernel, text, "is not a type and a name");
  Parameter parameter = {words[1], ParamKind::kInput};
  if (attribute.rfind("buffer(", 0) == 0) {
    if (constant == device) Fail(kernel, text, "must be in one of the address spaces device and constant");
    parameter.kind = constant ? ParamKind::kArgs : is_const ? ParamKind::kInput : ParamKind::kOutput;
    parameter.index = static_cast<uint32_t>(std::strtoul(attribute.c_str() + 7, nullptr, 10));
    parameter.alignment = Alignment(words[0]);
    if (parameter.index >= kMaxBuffers) Fail(kernel, text, "'buffer' attribute parameter is out of bounds: 0 to 30");
    return parameter;
  }
  for (const Builtin& builtin : kBuiltins) {
    if (attribute != builtin.attribute) continue;
    if (words[0] != builtin.type) Fail(kernel, text, std::string("the fake gives it as ") + builtin.type);
    parameter.kind = builtin.kind;
    return parameter;
  }
  Fail(kernel, text, "the fake does not know the attribute");
}

// The position after `word`, in text without comments, where it stands as a word; npos if nowhere.
size_t After(const std::string& text, const std::string& word, size_t from) {
  for (size_t at = text.find(word, from); at != std::string::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !IsWord(text[at - 1])) && end < text.size() && !IsWord(text[end])) return end;
  }
  return std::string::npos;
}

// Where the comment lines begin that stand directly before the line at `at`.
size_t WithComment(const std::string& text, size_t at) {
  const auto line_start = [&](size_t i) { return i == 0 ? 0 : text.rfind('\n', i - 1) + 1; };
  size_t begin = line_start(at);
  while (begin > 0) {
    const size_t before = line_start(begin - 1);
    if (text.compare(before, 2, "//") != 0) break;
    begin = before;
  }
  return begin;
}

}  // namespace

std::string WithoutComments(const std::string& text) {
  std::string result = text;
  const auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < std::min(end, text.size()); ++i) {
      if (text[i] != '\n') result[i] = ' ';
    }
    return std::min(end, text.size());
  };
  for (size_t i = 0; i + 1 < text.size();) {
    if (text[i] == '/' && text[i + 1] == '/') {
      i = blank(i, std::min(text.find('\n', i), text.size()));
    } else if (text[i] == '/' && text[i + 1] == '*') {
      const size_t end = text.find("*/", i + 2);
      i = blank(i, end == std::string::npos ? text.size() : end + 2);
    } else {
      ++i;
    }
  }
  return result;
}

std::vector<Signature> ReadSignatures(const std::string& text) {
  const std::string code = WithoutComments(text);
  std::vector<Signature> signatures;
  for (size_t at = After(code, "kernel", 0); at != std::string::npos; at = After(code, "kernel", at)) {
    const size_t open = code.find('(', at);
    const std::vector<std::string> words = Words(code.substr(at, open - at));
    if (words.size() != 2 || words[0] != "void") {
      throw InvalidArgument("program_source: error: a kernel must be declared as 'kernel void name('");
    }
    Signature signature = {words[1], {}, WithComment(text, at - 1)};
    int depth = 1;
    size_t begin = open + 1, end = begin;
    for (; end < code.size() && depth > 0; ++end) {
      depth += code[end] == '(' ? 1 : code[end] == ')' ? -1 : 0;
      const bool ends = (code[end] == ',' && depth == 1) || depth == 0;
      if (!ends) continue;
      const std::string parameter = code.substr(begin, end - begin);
      if (!Words(parameter).empty()) signature.parameters.push_back(Read(signature.name, parameter));
      begin = end + 1;
    }
    if (std::count_if(signature.parameters.begin(), signature.parameters.end(),
                      [](const Parameter& p) { return p.kind == ParamKind::kArgs; }) > 1) {
      Fail(signature.name, "", "the fake gives a kernel one constant parameter");
    }
    signatures.push_back(std::move(signature));
    at = end;
  }
  return signatures;
}

}  // namespace pjrt_metal::fake
