#include "csrc/software/stand_in_headers.h"

namespace pjrt_metal::software {

std::span<const Header> StandInHeaders() {
  static constexpr Header kHeaders[] = {
#include "stand_in_headers.inc"  // made by embed_headers.sh
  };
  return kHeaders;
}

}  // namespace pjrt_metal::software
