// Prints the tables of csrc/metal/selectors.h as JSON for test_apple_facts.py: arrays "messages" of [receiver,
// selector, types, macOS], "classes", "constants", "symbols". Types are in Objective-C's encoding (arm64: BOOL is B),
// made from the signatures that are sent.
#include <cstdio>
#include <initializer_list>
#include <string>

#include "csrc/metal/selectors.h"

namespace pjrt_metal::metal {
namespace {

template <typename T>
constexpr const char* kEncoding = nullptr;
template <>
constexpr const char* kEncoding<void> = "v";
template <>
constexpr const char* kEncoding<bool> = "B";
template <>
constexpr const char* kEncoding<int64_t> = "q";
template <>
constexpr const char* kEncoding<uint64_t> = "Q";
template <>
constexpr const char* kEncoding<uint32_t> = "I";
template <>
constexpr const char* kEncoding<double> = "d";
template <>
constexpr const char* kEncoding<Id> = "@";
template <>
constexpr const char* kEncoding<Id*> = "^@";
template <>
constexpr const char* kEncoding<Sel> = ":";
template <>
constexpr const char* kEncoding<CompletionBlock*> = "@?";
template <>
constexpr const char* kEncoding<void*> = "^v";
template <>
constexpr const char* kEncoding<const void*> = "r^v";
template <>
constexpr const char* kEncoding<const char*> = "r*";
template <>
constexpr const char* kEncoding<Size> = "{MTLSize=QQQ}";
template <>
constexpr const char* kEncoding<OsVersion> = "{NSOperatingSystemVersion=qqq}";

template <typename Signature>
struct Encoder;
template <typename Result, typename... Parameters>
struct Encoder<Result(Parameters...)> {
  static std::string Text() { return (std::string(kEncoding<Result>) + "@:" + ... + kEncoding<Parameters>); }
};

std::string Row(std::initializer_list<std::string> cells) {
  std::string row;
  for (const std::string& cell : cells) row += (row.empty() ? "[\"" : ", \"") + cell + "\"";
  return row + "]";
}

}  // namespace
}  // namespace pjrt_metal::metal

int main() {
  using namespace pjrt_metal::metal;
  std::string messages, classes, constants, symbols;
  const auto add = [](std::string& rows, std::initializer_list<std::string> cells) {
    rows += (rows.empty() ? "\n  " : ",\n  ") + Row(cells);
  };
#define X(identifier, receiver, selector, signature, macos) \
  add(messages, {receiver, selector, Encoder<signature>::Text(), macos});
  PJRT_METAL_MESSAGES(X)
#undef X
#define X(identifier, name, macos) add(classes, {name, macos});
  PJRT_METAL_CLASSES(X)
  PJRT_METAL_GRAPH_CLASSES(X)
#undef X
#define X(identifier, name, type, value, macos) add(constants, {name, std::to_string(value), macos});
  PJRT_METAL_CONSTANTS(X)
#undef X
#define X(identifier, name, macos) add(symbols, {name, macos});
  PJRT_METAL_SYMBOLS(X)
#undef X
  const std::string text = "{\"messages\": [" + messages + "],\n\"classes\": [" + classes + "],\n\"constants\": [" +
                           constants + "],\n\"symbols\": [" + symbols + "]}\n";
  std::fputs(text.c_str(), stdout);
}
