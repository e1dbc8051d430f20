// Protocol buffers' wire format, as far as a few small messages need it: varints and byte strings.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pjrt_metal {

class ProtoWriter {
 public:
  void Varint(uint32_t field, uint64_t value);
  void Bytes(uint32_t field, std::string_view value);
  void Packed(uint32_t field, std::span<const int64_t> values);  // omitted if empty
  const std::string& bytes() const { return bytes_; }

 private:
  void Raw(uint64_t value);
  std::string bytes_;
};

// Reads field by field; the bytes must outlive it. Throws InvalidArgument for a malformed message.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : rest_(bytes) {}
  // False at the end. Fixed-width fields are skipped over.
  bool Next();
  uint32_t field() const { return field_; }
  // Of the current field; throws if it has another wire type.
  uint64_t varint() const;
  std::string_view bytes() const;
  // The values of a repeated integer field's element: one varint, or packed ones.
  template <typename F>
  void ForEachInteger(F f) const {
    if (varint_) return f(*varint_);
    ProtoReader packed(bytes());
    while (!packed.rest_.empty()) f(packed.Raw());
  }

 private:
  uint64_t Raw();
  std::string_view rest_;
  uint32_t field_ = 0;
  std::optional<uint64_t> varint_;
  std::optional<std::string_view> bytes_;
};

}  // namespace pjrt_metal
