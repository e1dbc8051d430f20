// What the programs that attack the plugin share: numbers by seed, the C API, and an end for what hangs.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/pjrt/pjrt_c_api.h"

extern "C" const PJRT_Api* GetPjrtApi();

namespace pjrt_metal::attack {

// The numbers of one attempt depend on the seed and the attempt's number alone: any one can be repeated.
class Random {
 public:
  Random(uint64_t seed, uint64_t attempt) : engine_(seed * 0x9e3779b97f4a7c15 + attempt) {}
  uint64_t Next() { return engine_(); }
  size_t Below(size_t bound) { return static_cast<size_t>(engine_() % bound); }
  bool OneIn(size_t count) { return Below(count) == 0; }
  template <class Container>
  auto& Pick(Container& values) {
    return values[Below(values.size())];
  }
  // Numbers that bounds are off by one at, of up to `bits` bits.
  uint64_t Odd(int bits = 64) {
    switch (Below(6)) {
      case 0:
        return Below(4);
      case 1:
        return ~uint64_t{0} - Below(3);
      case 2:
        return (uint64_t{1} << Below(static_cast<size_t>(bits))) - Below(3) + 1;
      case 3:
        return Below(64);
      case 4:
        return (~uint64_t{0} >> 1) - Below(3) + 1;
      default:
        return Next() >> Below(64);
    }
  }

 private:
  std::mt19937_64 engine_;
};

// Says on standard error which attempt a process died of; `seconds` is what one may take.
inline volatile uint64_t current_attempt = 0;
inline void Begin(uint64_t attempt, unsigned seconds = 30) {
  current_attempt = attempt;
  alarm(seconds);
}
inline void SayAttempt() {
  char text[80];
  const int size =
      std::snprintf(text, sizeof text, "in attempt %llu\n", static_cast<unsigned long long>(current_attempt));
  if (write(STDERR_FILENO, text, static_cast<size_t>(size)) < 0) return;
}

extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*)());

inline void Install() {
  const auto handler = [](int signal) {
    SayAttempt();
    const char text[] = "hang or abort\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(3);
    std::_Exit(signal == SIGALRM ? 98 : 97);
  };
  signal(SIGALRM, handler);
  signal(SIGABRT, handler);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(SayAttempt);
}

template <class Args>
Args New() {
  Args args;
  std::memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  return args;
}

// Takes the error; returns its code, 0 if there was none. An error without a message, or of an unknown code, is a
// fault.
inline int Take(const PJRT_Api& api, PJRT_Error* error, std::string* text = nullptr) {
  if (error == nullptr) return 0;
  auto message = New<PJRT_Error_Message_Args>();
  message.error = error;
  api.PJRT_Error_Message(&message);
  auto code = New<PJRT_Error_GetCode_Args>();
  code.error = error;
  api.PJRT_Error_GetCode(&code);
  if (message.message == nullptr || code.code < 1 || code.code > 16) {
    std::fprintf(stderr, "an error without a message, or of an unknown code\n");
    std::abort();
  }
  if (text != nullptr) text->assign(message.message, message.message_size);
  auto destroy = New<PJRT_Error_Destroy_Args>();
  destroy.error = error;
  api.PJRT_Error_Destroy(&destroy);
  return code.code;
}

// A CompileOptionsProto, mostly with something wrong.
inline std::string Options(Random& random) {
  // CompileOptionsProto: executable_build_options (3) with a device ordinal, counts and an assignment.
  const auto nested = [](int field, const std::string& text) {
    return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(text.size())} + text;
  };
  const auto number = [](int field, uint64_t value) {
    std::string text{static_cast<char>(field << 3)};
    for (; value >= 128; value >>= 7) text += static_cast<char>(value | 128);
    return text + static_cast<char>(value);
  };
  if (random.OneIn(3)) return "";
  const auto count = [&] { return random.OneIn(6) ? random.Odd() : 1; };
  const std::string assignment =
      number(1, count()) + number(2, count()) + nested(3, nested(1, number(0, random.Below(3)).substr(1)));
  std::string options =
      nested(3, number(1, random.Below(3)) + number(4, count()) + number(5, count()) + nested(9, assignment));
  for (size_t i = random.Below(4); i > 0; --i) options[random.Below(options.size())] = static_cast<char>(random.Odd(8));
  if (random.OneIn(9)) options.resize(random.Below(options.size()));
  return options;
}

inline std::vector<uint8_t> ReadAll(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) {
    std::perror(path);
    std::exit(2);
  }
  std::vector<uint8_t> bytes;
  uint8_t piece[4096];
  for (size_t count; (count = std::fread(piece, 1, sizeof piece, file)) > 0;)
    bytes.insert(bytes.end(), piece, piece + count);
  std::fclose(file);
  return bytes;
}

// The corpus's Programs (attack_corpus.py writes it), without the places of their fields.
template <class Bytes>
std::vector<Bytes> ReadPrograms(const char* path) {
  const std::vector<uint8_t> file = ReadAll(path);
  const uint8_t* at = file.data();
  const auto number = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  };
  std::vector<Bytes> programs;
  for (uint32_t left = number(uint32_t{}); left > 0; --left) {
    const auto size = number(uint64_t{});
    programs.emplace_back(at, at + size);
    at += size;
    at += size_t{5} * number(uint32_t{});
  }
  return programs;
}

}  // namespace pjrt_metal::attack
