// The memory that one run of a launch sees: copies of its buffers far apart, its arguments and
// threadgroup memory, with a record of who accessed each byte last.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/runtime/device.h"
#include "csrc/software/include/strict_abi.h"

namespace pjrt_metal::software {

using ::software::Access;

constexpr size_t kMaxThreadgroupBytes = 32 << 10;  // of the Apple GPUs that targets name
constexpr size_t kMaxThreadBytes = 4 << 20;        // of the arrays on a CPU thread's stack; less than any such stack

// How a grid is divided. The last threadgroup along an axis may be smaller than the others.
struct Geometry {
  std::array<uint32_t, 3> threads, per_group, groups;

  // Throws Internal, naming `kernel`, unless Metal would accept the grid. Chooses the threadgroup if
  // the grid leaves it to the device.
  Geometry(const std::string& kernel, const Grid& grid);
  uint32_t group_count() const { return groups[0] * groups[1] * groups[2]; }
  std::array<uint32_t, 3> GroupPosition(uint32_t group) const;
  std::array<uint32_t, 3> GroupSize(uint32_t group) const;
  std::string Describe(uint32_t group, uint32_t thread) const;
};

// {x, y, z} of the number in a box, x fastest; and as text.
std::array<uint32_t, 3> Position(uint32_t number, const std::array<uint32_t, 3>& box);
std::string Text(const std::array<uint32_t, 3>& position);

// Pages from the OS, zero until written.
class Pages {
 public:
  explicit Pages(size_t bytes);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();
  std::byte* data() const { return data_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

// More barriers than a thread may pass, for records' sake.
constexpr uint32_t kMaxBarriers = 1 << 15;

// A thread at one moment. What it did before a barrier is ordered before what others do after it.
struct Moment {
  uint32_t group = 0;   // number in the grid
  uint32_t thread = 0;  // number in the group
  // Barriers passed by [its threadgroup, its SIMD group] that order [device, threadgroup] memory.
  uint32_t barriers[2][2] = {};
};

// Memory that a kernel is given.
struct Piece {
  std::string name;     // "buffer x"
  std::byte* original;  // what it is a copy of
  size_t bytes;
  bool writable;
  // One a byte: not zero where nobody has written what this piece is to hold. Empty: all is there.
  std::vector<uint8_t> missing = {};
};

struct Touched {
  const std::byte *begin, *end;
  bool written;
};

class Memory {
 public:
  // Copies the pieces; those that share bytes share them here too.
  Memory(const Geometry& geometry, std::vector<Piece> pieces);

  std::byte* copy(size_t piece) const { return copies_[piece]; }

  // Threadgroup memory of that name and line, made when first asked for; nullptr when all of them
  // exceed kMaxThreadgroupBytes.
  void* Threadgroup(const std::string& name, int line, size_t bytes, size_t alignment);
  size_t threadgroup_bytes() const { return threadgroup_bytes_; }
  // An array of the thread that is alone in threadgroup `group`, not written yet; the same memory for each thread.
  // nullptr when all of a thread's arrays exceed kMaxThreadBytes.
  void* ThreadArray(const std::string& name, int line, size_t bytes, size_t alignment, uint32_t group);

  // Whether this is memory for the kernel at all: it may also access its own stack and constants.
  bool Contains(uintptr_t address) const;
  // Records the access; what is wrong with it, if anything.
  std::string Check(uintptr_t address, size_t bytes, Access access, const Moment& moment);
  // Writes what was written to the copies, and nothing else, into the originals: those may hold
  // bytes that are no business of the kernel's.
  void CopyBack() const;
  // What was accessed of the originals: runs of bytes that were all written, or all only read.
  std::vector<Touched> WhatWasTouched() const;
  // "16 bytes at byte 128 of buffer x (128 bytes)", of the piece that is nearest.
  std::string Describe(uintptr_t address, size_t bytes, Access access) const;

 private:
  struct Record {
    uint64_t writer, reader;  // packed moments, see strict_memory.cc
  };
  struct Region {
    uintptr_t begin, end;
    bool threadgroup, writable;
    Record* records;  // one a byte
    std::byte* original;
    std::string name;    // "threadgroup memory tile"
    int line;            // where it was declared
    uint32_t group = 0;  // whose array it was last
  };
  Region* Declare(const std::string& name, int line, size_t bytes);
  void MarkMissing(const Region& region);
  const Region* Find(uintptr_t address, size_t bytes);
  size_t PageOf(uintptr_t address) const;  // in memory_
  std::string CheckRead(Record& record, Access access, const Region& region, const Moment& moment) const;
  std::string CheckWrite(Record& record, Access access, const Region& region, const Moment& moment) const;
  static bool IsPlain(Record* record, size_t bytes, bool reads, const Region& region, const Moment& moment);
  std::string Other(uint64_t record) const;

  const Geometry geometry_;
  const std::vector<Piece> pieces_;
  std::vector<std::byte*> copies_;
  std::vector<Region> regions_;  // by address; threadgroup memory last
  size_t last_ = 0;              // the region found last
  std::vector<size_t> offsets_;  // of clusters
  size_t bytes_;                 // of all copies and the gaps
  Pages memory_, records_;
  std::vector<uint8_t> pages_;  // each page of memory_: kTouched, kWritten
  size_t next_;                 // where the next threadgroup memory goes, from the beginning of memory_
  size_t next_record_ = 0;
  size_t threadgroup_bytes_ = 0, thread_bytes_ = 0;
};

}  // namespace pjrt_metal::software
