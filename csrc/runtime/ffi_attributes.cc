#include "csrc/runtime/ffi_attributes.h"

#include <array>
#include <cstring>

namespace pjrt_metal {
namespace {

constexpr int kMaxDepth = 16;  // of dictionaries in dictionaries

// Indexed by DType; 0: not a type of the FFI.
constexpr std::array<int, 30> kDataTypes = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 19, 20, 23, 24, 25, 21, 22, 17, 26, 27, 28, 29, 33, 32,
};

}  // namespace

int FfiDataType(DType dtype) {
  const auto value = static_cast<size_t>(dtype);
  if (value >= kDataTypes.size() || kDataTypes[value] == 0) {
    throw InvalidArgument("element type " + std::to_string(value) + " is none of the FFI's");
  }
  return kDataTypes[value];
}

FfiAttributes::FfiAttributes(Reader& in) : view_(ReadDictionary(in, 0)) {}

const void* FfiAttributes::FindScalar(std::string_view name, DType dtype) const {
  for (int64_t i = 0; i < view_->count; ++i) {
    if (view_->kinds[i] != xla_ffi::kScalar || name != std::string_view(view_->names[i]->data, view_->names[i]->size)) {
      continue;
    }
    const auto* scalar = static_cast<const xla_ffi::Scalar*>(view_->values[i]);
    return scalar->dtype == FfiDataType(dtype) ? scalar->value : nullptr;
  }
  return nullptr;
}

xla_ffi::Attributes* FfiAttributes::ReadDictionary(Reader& in, int depth) {
  if (depth > kMaxDepth) in.Fail("attributes are nested too deep");
  Dictionary& dictionary = dictionaries_.emplace_back();
  const uint32_t count = in.Count(9);
  std::string_view last;
  for (uint32_t i = 0; i < count; ++i) {
    const xla_ffi::Text* name = ReadText(in);
    const std::string_view text(name->data, name->size);
    // Handlers look them up by their place in this order.
    if (i > 0 && text <= last) in.Fail("attributes are not sorted by name");
    last = text;
    const int kind = in.Number<uint8_t>();
    dictionary.names.push_back(name);
    dictionary.kinds.push_back(kind);
    dictionary.values.push_back(ReadValue(in, kind, depth));
  }
  dictionary.view = {sizeof(xla_ffi::Attributes), nullptr,
                     static_cast<int64_t>(count), dictionary.kinds.data(),
                     dictionary.names.data(),     dictionary.values.data()};
  return &dictionary.view;
}

void* FfiAttributes::ReadValue(Reader& in, int kind, int depth) {
  if (kind == xla_ffi::kDictionary) return ReadDictionary(in, depth + 1);
  if (kind == xla_ffi::kString) return ReadText(in);
  if (kind != xla_ffi::kScalar && kind != xla_ffi::kArray) in.Fail("unknown kind of attribute");
  const auto code = in.Number<uint8_t>();
  if (!IsKnown(code)) in.Fail("an attribute has unknown element type " + std::to_string(code));
  const auto dtype = static_cast<DType>(code);
  const auto blob = in.Blob();
  const size_t element = Info(dtype).host_bits / 8;
  if (blob.size() % element != 0 || (kind == xla_ffi::kScalar && blob.size() != element)) {
    in.Fail("an attribute's bytes are not whole elements");
  }
  auto& storage = elements_.emplace_back(blob.size() / sizeof(std::max_align_t) + 1);
  if (!blob.empty()) std::memcpy(storage.data(), blob.data(), blob.size());
  if (kind == xla_ffi::kScalar) return &scalars_.emplace_back(xla_ffi::Scalar{FfiDataType(dtype), storage.data()});
  return &arrays_.emplace_back(xla_ffi::Array{FfiDataType(dtype), blob.size() / element, storage.data()});
}

xla_ffi::Text* FfiAttributes::ReadText(Reader& in) {
  const std::string& text = strings_.emplace_back(in.String());
  return &texts_.emplace_back(xla_ffi::Text{text.data(), text.size()});
}

}  // namespace pjrt_metal
