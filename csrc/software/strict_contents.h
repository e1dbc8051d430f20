// Which bytes of the memory that a submission uses hold what they are to hold: a byte belongs to whoever wrote it last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "csrc/runtime/device.h"

namespace pjrt_metal::software {

class Contents {
 public:
  void Set(const Binding& binding, bool written);
  // One a byte of the binding, not zero where it does not hold what its owner wrote; empty: it all does. Memory that
  // was never Set, and what a binding without an owner reads, is taken to be there.
  std::vector<uint8_t> Missing(const Binding& binding) const;
  // The destination's owner has what the source's had.
  void Copy(const Binding& source, const Binding& destination, size_t bytes);
  // Those bytes, which are among the binding's, were written.
  void Wrote(const Binding& binding, const std::byte* begin, const std::byte* end);

 private:
  using Tag = uint16_t;
  static Tag TagOf(const Binding& binding);
  // The tags of the binding's bytes; nullptr if nothing is known of its allocation.
  Tag* Find(const Binding& binding);
  const Tag* Find(const Binding& binding) const { return const_cast<Contents*>(this)->Find(binding); }

  std::map<const std::byte*, std::vector<Tag>> tags_;  // by where the allocation begins, one a byte
};

// How many bytes the binding names.
size_t BytesOf(const Binding& binding);

}  // namespace pjrt_metal::software
