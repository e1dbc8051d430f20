#include "csrc/pjrt/proto.h"

#include "csrc/runtime/error.h"

namespace pjrt_metal {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

Error Malformed() { return InvalidArgument("malformed protocol buffer message"); }

}  // namespace

void ProtoWriter::Raw(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
  bytes_.push_back(static_cast<char>(value));
}

void ProtoWriter::Varint(uint32_t field, uint64_t value) {
  Raw(uint64_t{field} << 3 | kVarint);
  Raw(value);
}

void ProtoWriter::Bytes(uint32_t field, std::string_view value) {
  Raw(uint64_t{field} << 3 | kBytes);
  Raw(value.size());
  bytes_ += value;
}

void ProtoWriter::Packed(uint32_t field, std::span<const int64_t> values) {
  if (values.empty()) return;
  ProtoWriter packed;
  for (const int64_t value : values) packed.Raw(static_cast<uint64_t>(value));
  Bytes(field, packed.bytes_);
}

uint64_t ProtoReader::Raw() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) throw Malformed();
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  throw Malformed();
}

bool ProtoReader::Next() {
  varint_.reset();
  bytes_.reset();
  if (rest_.empty()) return false;
  const uint64_t key = Raw();
  field_ = static_cast<uint32_t>(key >> 3);
  uint64_t size = 0;
  switch (key & 7) {
    case kVarint:
      varint_ = Raw();
      return true;
    case kBytes:
      size = Raw();
      break;
    case kFixed64:
      size = 8;
      break;
    case kFixed32:
      size = 4;
      break;
    default:
      throw Malformed();
  }
  if (size > rest_.size()) throw Malformed();
  if ((key & 7) == kBytes) bytes_ = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

uint64_t ProtoReader::varint() const {
  if (!varint_) throw Malformed();
  return *varint_;
}

std::string_view ProtoReader::bytes() const {
  if (!bytes_) throw Malformed();
  return *bytes_;
}

}  // namespace pjrt_metal
