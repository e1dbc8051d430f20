// The stand-in <metal_stdlib> (csrc/software/include), kept inside the library.
#pragma once

#include <span>
#include <string_view>

namespace pjrt_metal::software {

struct Header {
  std::string_view name;
  std::string_view text;
};
std::span<const Header> StandInHeaders();

}  // namespace pjrt_metal::software
