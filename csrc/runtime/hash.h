// BLAKE2b with 32-byte digests (RFC 7693): names kernels in the caches and verifies cache files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace pjrt_metal {

using Digest = std::array<uint8_t, 32>;

class Hasher {
 public:
  Hasher();
  Hasher& Add(std::string_view bytes);
  // With its length in front, so that the boundaries between fields count.
  Hasher& AddField(std::string_view bytes);
  // Ends the hash: nothing may be added after it.
  Digest Finish();

 private:
  void Compress(const uint8_t* block, bool last);

  std::array<uint64_t, 8> state_;
  std::array<uint8_t, 128> block_;
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

std::string Hex(const Digest& digest);

}  // namespace pjrt_metal
