// A custom call's attributes, from the Program's bytes to what an XLA FFI handler is given.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "csrc/runtime/dtype.h"
#include "csrc/runtime/reader.h"
#include "csrc/runtime/xla_ffi.h"

namespace pjrt_metal {

// XLA_FFI_DataType's value. Throws InvalidArgument for a type that the FFI does not have.
int FfiDataType(DType dtype);

class FfiAttributes {
 public:
  // Reads the dictionary that mlir_lowering/program.py specifies; Reader::Fail says what is wrong with it.
  explicit FfiAttributes(Reader& in);
  FfiAttributes(const FfiAttributes&) = delete;
  FfiAttributes& operator=(const FfiAttributes&) = delete;

  const xla_ffi::Attributes& view() const { return *view_; }
  // The attribute of that name if it is a scalar of that type, else nullptr.
  const void* FindScalar(std::string_view name, DType dtype) const;

 private:
  struct Dictionary {
    std::vector<int> kinds;
    std::vector<const xla_ffi::Text*> names;
    std::vector<void*> values;
    xla_ffi::Attributes view;
  };

  xla_ffi::Attributes* ReadDictionary(Reader& in, int depth);
  void* ReadValue(Reader& in, int kind, int depth);
  xla_ffi::Text* ReadText(Reader& in);

  // Deques, so that what points to an element stays right.
  std::deque<Dictionary> dictionaries_;
  std::deque<std::string> strings_;
  std::deque<xla_ffi::Text> texts_;
  std::deque<xla_ffi::Scalar> scalars_;
  std::deque<xla_ffi::Array> arrays_;
  std::deque<std::vector<std::max_align_t>> elements_;  // aligned for every type
  const xla_ffi::Attributes* view_;
};

}  // namespace pjrt_metal
