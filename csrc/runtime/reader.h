// Reads a Program's bytes (little-endian, see mlir_lowering/program.py), never past their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "csrc/runtime/error.h"

namespace pjrt_metal {

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[noreturn]] void Fail(const std::string& what) const {
    throw InvalidArgument("not a valid Program: " + what + " (at byte " + std::to_string(at_) + ")");
  }

  template <class T>
  T Number() {
    T value;
    std::memcpy(&value, Take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::span<const std::byte> Blob() {
    const auto size = Number<uint64_t>();
    if (size > bytes_.size() - at_) Fail("a length of " + std::to_string(size) + " exceeds what is left");
    return Take(static_cast<size_t>(size));
  }

  std::string String() {
    const auto blob = Blob();
    return {reinterpret_cast<const char*>(blob.data()), blob.size()};
  }

  // A count of elements that take at least `least` bytes each, so that no count can make us allocate wildly.
  uint32_t Count(size_t least) {
    const auto count = Number<uint32_t>();
    if (count > (bytes_.size() - at_) / least) Fail("a count of " + std::to_string(count) + " exceeds what is left");
    return count;
  }

  template <class T>
  std::vector<T> Numbers() {
    std::vector<T> values(Count(sizeof(T)));
    if (!values.empty()) {
      const auto from = Take(values.size() * sizeof(T));
      std::memcpy(values.data(), from.data(), from.size());
    }
    return values;
  }

  bool done() const { return at_ == bytes_.size(); }

 private:
  std::span<const std::byte> Take(size_t size) {
    if (size > bytes_.size() - at_) Fail("it ends in the middle");
    const auto taken = bytes_.subspan(at_, size);
    at_ += size;
    return taken;
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace pjrt_metal
