#include "csrc/software/strict_contents.h"

#include <algorithm>

namespace pjrt_metal::software {
namespace {

// Tags: what was there before anybody said anything; nothing; else the owner's number and one more.
constexpr uint16_t kUnknown = 0, kUnwritten = 1;

}  // namespace

size_t BytesOf(const Binding& binding) {
  const size_t size = binding.allocation->size();
  const size_t left = binding.offset > size ? 0 : size - binding.offset;
  return std::min(binding.bytes, left);
}

Contents::Tag Contents::TagOf(const Binding& binding) {
  if (binding.owner >= UINT16_MAX) {
    throw Unimplemented("a program with more than 65,000 buffers is too large for the strict software device");
  }
  return static_cast<Tag>(binding.owner == 0 ? kUnknown : binding.owner + 1);
}

Contents::Tag* Contents::Find(const Binding& binding) {
  const auto found = tags_.find(binding.allocation->data());
  if (found == tags_.end() || binding.offset + BytesOf(binding) > found->second.size()) return nullptr;
  return found->second.data() + binding.offset;
}

void Contents::Set(const Binding& binding, bool written) {
  std::vector<Tag>& tags = tags_[binding.allocation->data()];
  tags.resize(std::max(tags.size(), binding.allocation->size()), kUnknown);
  std::fill_n(tags.data() + binding.offset, BytesOf(binding), written ? TagOf(binding) : kUnwritten);
}

std::vector<uint8_t> Contents::Missing(const Binding& binding) const {
  const Tag* tags = Find(binding);
  const Tag own = TagOf(binding);
  if (tags == nullptr || own == kUnknown) return {};
  std::vector<uint8_t> missing(BytesOf(binding));
  uint8_t any = 0;
  for (size_t i = 0; i < missing.size(); ++i) any |= missing[i] = tags[i] != own && tags[i] != kUnknown;
  if (any == 0) missing.clear();
  return missing;
}

void Contents::Copy(const Binding& source, const Binding& destination, size_t bytes) {
  const std::vector<uint8_t> missing = Missing(source);
  Tag* to = Find(destination);
  if (to == nullptr) return;
  for (size_t i = 0; i < bytes; ++i) {
    to[i] = !missing.empty() && missing[i] != 0 ? kUnwritten : TagOf(destination);
  }
}

void Contents::Wrote(const Binding& binding, const std::byte* begin, const std::byte* end) {
  Tag* tags = Find(binding);
  if (tags == nullptr) return;
  const std::byte* data = binding.allocation->data() + binding.offset;
  std::fill(tags + (begin - data), tags + (end - data), TagOf(binding));
}

}  // namespace pjrt_metal::software
