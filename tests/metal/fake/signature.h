// What a kernel's MSL signature says of its parameters, read as our compiler writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/runtime/device.h"

namespace pjrt_metal::fake {

struct Parameter {
  std::string name;
  ParamKind kind;
  uint32_t index = 0;      // of [[buffer(index)]]
  uint32_t alignment = 1;  // that its address must have
};

struct Signature {
  std::string name;
  std::vector<Parameter> parameters;
  size_t begin = 0;  // of the kernel in the text, the comments before it included
};

// The kernels that the text defines. Throws InvalidArgument, in the form of a compiler's error, for what
// neither Metal nor the software device takes.
std::vector<Signature> ReadSignatures(const std::string& text);

// The text with spaces in place of comments.
std::string WithoutComments(const std::string& text);

}  // namespace pjrt_metal::fake
