#include "csrc/runtime/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pjrt_metal {
namespace {

static_assert(std::endian::native == std::endian::little, "BLAKE2b's words are little-endian");

constexpr std::array<uint64_t, 8> kInitial = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                              0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                              0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};

// Which words of the block each round mixes; rounds 10 and 11 repeat 0 and 1.
constexpr uint8_t kOrder[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

}  // namespace

Hasher::Hasher() : state_(kInitial) {
  state_[0] ^= 0x01010000 ^ sizeof(Digest);  // no key, one sequential leaf, digest length
}

void Hasher::Compress(const uint8_t* block, bool last) {
  uint64_t words[16];
  std::memcpy(words, block, sizeof words);
  uint64_t v[16];
  std::copy(state_.begin(), state_.end(), v);
  std::copy(kInitial.begin(), kInitial.end(), v + 8);
  v[12] ^= total_;  // its upper half is zero: nobody hashes 2^64 bytes
  if (last) v[14] = ~v[14];
  const auto mix = [&v](int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = std::rotr(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = std::rotr(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = std::rotr(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = std::rotr(v[b] ^ v[c], 63);
  };
  for (int round = 0; round < 12; ++round) {
    const uint8_t* order = kOrder[round % 10];
    for (int i = 0; i < 4; ++i) {  // columns
      mix(i, i + 4, i + 8, i + 12, words[order[2 * i]], words[order[2 * i + 1]]);
    }
    for (int i = 0; i < 4; ++i) {  // diagonals
      mix(i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12, words[order[2 * i + 8]], words[order[2 * i + 9]]);
    }
  }
  for (int i = 0; i < 8; ++i) state_[i] ^= v[i] ^ v[i + 8];
}

Hasher& Hasher::Add(std::string_view bytes) {
  while (!bytes.empty()) {
    // The last block is compressed by Finish, so a full one waits until more comes.
    if (filled_ == block_.size()) {
      total_ += filled_;
      Compress(block_.data(), false);
      filled_ = 0;
    }
    const size_t count = std::min(bytes.size(), block_.size() - filled_);
    std::memcpy(block_.data() + filled_, bytes.data(), count);
    filled_ += count;
    bytes.remove_prefix(count);
  }
  return *this;
}

Hasher& Hasher::AddField(std::string_view bytes) {
  const uint64_t size = bytes.size();
  Add({reinterpret_cast<const char*>(&size), sizeof size});
  return Add(bytes);
}

Digest Hasher::Finish() {
  total_ += filled_;
  std::memset(block_.data() + filled_, 0, block_.size() - filled_);
  Compress(block_.data(), true);
  Digest digest;
  std::memcpy(digest.data(), state_.data(), digest.size());
  return digest;
}

std::string Hex(const Digest& digest) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace pjrt_metal
