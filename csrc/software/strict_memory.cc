#include "csrc/software/strict_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace pjrt_metal::software {
namespace {

constexpr uint32_t kMaxThreads = 1024;  // in a threadgroup, on every Apple GPU
constexpr uint32_t kChosenThreads = 256;
// Around each piece, so that an access past its end is not one to another. Address space only.
constexpr size_t kGap = 1 << 20;
constexpr size_t kAlignment = 256;  // of copies: that of the device's allocations
constexpr size_t kThreadgroupAlignment = 16;
constexpr size_t kThreadgroupGap = 64 << 10;
constexpr size_t kPage = 4096;  // how coarse Memory::pages_ is
constexpr uint8_t kTouched = 1, kWritten = 2;
constexpr size_t kMaxDeclarations = 64;  // of threadgroup memory in a kernel

// A moment in 64 bits, 0 being none: what is needed to know whether it is ordered before another.
// Readers: of one thread, or the last of several.
enum Readers : uint64_t { kOne, kManyInSimdgroup, kManyInGroup, kManyGroups };
constexpr int kGroupBits = 22, kThreadBits = 10, kBarrierBits = 15;
static_assert(kMaxBarriers == 1 << kBarrierBits);
constexpr uint32_t kMaxGroups = (1u << kGroupBits) - 2;

uint64_t Pack(const Moment& moment, bool threadgroup, Readers readers) {
  uint64_t packed = moment.group + 1;
  packed = packed << 2 | readers;
  packed = packed << kThreadBits | moment.thread;
  for (const auto& passed : moment.barriers) {
    packed = packed << kBarrierBits | (passed[threadgroup] & ((1u << kBarrierBits) - 1));
  }
  return packed;
}
// Instead of a writer's moment: the byte holds nothing. No group has its number.
constexpr uint64_t kNobody = ~uint64_t{0};
bool WasWritten(uint64_t writer) { return writer != 0 && writer != kNobody; }
uint32_t Group(uint64_t packed) { return static_cast<uint32_t>(packed >> (2 + kThreadBits + 2 * kBarrierBits)) - 1; }
Readers ReadersOf(uint64_t packed) { return Readers(packed >> (kThreadBits + 2 * kBarrierBits) & 3); }
uint32_t Thread(uint64_t packed) { return packed >> 2 * kBarrierBits & ((1u << kThreadBits) - 1); }
uint32_t GroupBarriers(uint64_t packed) { return packed >> kBarrierBits & ((1u << kBarrierBits) - 1); }
uint32_t SimdBarriers(uint64_t packed) { return packed & ((1u << kBarrierBits) - 1); }
bool SameSimdgroup(uint64_t a, uint64_t b) {
  return Thread(a) / ::software::kSimdWidth == Thread(b) / ::software::kSimdWidth;
}

// Whether all that `before` stands for, in the group of `now`, is ordered before it. One thread
// needs no barriers.
bool Ordered(uint64_t before, uint64_t now) {
  switch (ReadersOf(before)) {
    case kOne:
      if (Thread(before) == Thread(now)) return true;
      [[fallthrough]];
    case kManyInSimdgroup:
      if (SameSimdgroup(before, now)) return SimdBarriers(before) < SimdBarriers(now);
      return GroupBarriers(before) < GroupBarriers(now);
    case kManyInGroup:
      return GroupBarriers(before) < GroupBarriers(now);
    case kManyGroups:
      return false;
  }
  return false;
}

size_t RoundUp(size_t value, size_t to) { return (value + to - 1) / to * to; }

struct Range {
  std::byte *begin, *end;
};

// The unions of pieces that overlap, in order.
std::vector<Range> Clusters(const std::vector<Piece>& pieces) {
  std::vector<Range> ranges, clusters;
  for (const Piece& piece : pieces) ranges.push_back({piece.original, piece.original + piece.bytes});
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& range : ranges) {
    if (!clusters.empty() && range.begin < clusters.back().end) {
      clusters.back().end = std::max(clusters.back().end, range.end);
    } else {
      clusters.push_back(range);
    }
  }
  return clusters;
}

// Where a cluster goes in memory of Memory::memory_, the offset modulo kAlignment kept.
std::vector<size_t> Offsets(const std::vector<Range>& clusters) {
  std::vector<size_t> offsets;
  size_t next = kGap;
  for (const Range& cluster : clusters) {
    offsets.push_back(next + reinterpret_cast<uintptr_t>(cluster.begin) % kAlignment);
    next = RoundUp(offsets.back() + static_cast<size_t>(cluster.end - cluster.begin) + kGap, kAlignment);
  }
  offsets.push_back(next);
  return offsets;
}

size_t TotalBytes(const std::vector<Range>& clusters) {
  size_t total = 0;
  for (const Range& cluster : clusters) total += static_cast<size_t>(cluster.end - cluster.begin);
  return total;
}

}  // namespace

std::array<uint32_t, 3> Position(uint32_t number, const std::array<uint32_t, 3>& box) {
  return {number % box[0], number / box[0] % box[1], number / box[0] / box[1]};
}

std::string Text(const std::array<uint32_t, 3>& p) {
  return "(" + std::to_string(p[0]) + ", " + std::to_string(p[1]) + ", " + std::to_string(p[2]) + ")";
}

Geometry::Geometry(const std::string& kernel, const Grid& grid) {
  std::copy_n(grid.threads, 3, threads.begin());
  std::copy_n(grid.per_threadgroup, 3, per_group.begin());
  if (per_group == std::array<uint32_t, 3>{}) {
    uint32_t left = kChosenThreads;
    for (int axis = 0; axis < 3; ++axis) {
      per_group[axis] = std::clamp(threads[axis], 1u, left);
      left /= per_group[axis];
    }
  }
  uint64_t size = 1, count = 1;
  for (int axis = 0; axis < 3; ++axis) {
    if (threads[axis] == 0) throw Internal(kernel + ": launched with an empty grid");
    const uint32_t n = per_group[axis];
    size *= n;
    if (n == 0 || n > kMaxThreads || size > kMaxThreads) {
      throw Internal(kernel + ": launched with " + Text(per_group) +
                     " threads in a threadgroup; Apple GPUs allow 1 to " + std::to_string(kMaxThreads));
    }
    groups[axis] = (threads[axis] - 1) / n + 1;
    count *= groups[axis];
    if (count > kMaxGroups) {
      throw Unimplemented(kernel + ": its grid has more than " + std::to_string(kMaxGroups) +
                          " threadgroups, too many for the strict software device; use smaller arrays");
    }
  }
}

std::array<uint32_t, 3> Geometry::GroupPosition(uint32_t group) const { return Position(group, groups); }

std::array<uint32_t, 3> Geometry::GroupSize(uint32_t group) const {
  const std::array<uint32_t, 3> position = GroupPosition(group);
  std::array<uint32_t, 3> size;
  for (int axis = 0; axis < 3; ++axis) {
    size[axis] = std::min(per_group[axis], threads[axis] - position[axis] * per_group[axis]);
  }
  return size;
}

std::string Geometry::Describe(uint32_t group, uint32_t thread) const {
  return "thread " + Text(Position(thread, GroupSize(group))) + " of threadgroup " + Text(GroupPosition(group));
}

Pages::Pages(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw ResourceExhausted("strict software Metal: no memory for " + std::to_string(bytes) +
                            " bytes of copies and records; use smaller arrays");
  }
  data_ = static_cast<std::byte*>(memory);
}

Pages::~Pages() { munmap(data_, bytes_); }

Memory::Memory(const Geometry& geometry, std::vector<Piece> pieces)
    : geometry_(geometry),
      pieces_(std::move(pieces)),
      offsets_(Offsets(Clusters(pieces_))),
      bytes_(offsets_.back() + kMaxThreadgroupBytes + kMaxThreadBytes + kMaxDeclarations * kThreadgroupGap),
      memory_(bytes_),
      records_((TotalBytes(Clusters(pieces_)) + kMaxThreadgroupBytes + kMaxThreadBytes) * sizeof(Record)),
      pages_(bytes_ / kPage + 1),
      next_(offsets_.back()) {
  const std::vector<Range> clusters = Clusters(pieces_);
  copies_.resize(pieces_.size());
  for (size_t i = 0; i < clusters.size(); ++i) {
    const auto [begin, end] = clusters[i];
    const auto bytes = static_cast<size_t>(end - begin);
    std::byte* copy = memory_.data() + offsets_[i];
    if (bytes > 0) std::memcpy(copy, begin, bytes);
    const auto address = reinterpret_cast<uintptr_t>(copy);
    Region region = {address, address + bytes, false, false, nullptr, begin, "", 0};
    region.records = reinterpret_cast<Record*>(records_.data()) + next_record_;
    next_record_ += bytes;
    for (size_t j = 0; j < pieces_.size(); ++j) {
      if (pieces_[j].original < begin || pieces_[j].original + pieces_[j].bytes > end) continue;
      copies_[j] = copy + (pieces_[j].original - begin);
      region.writable |= pieces_[j].writable;
    }
    MarkMissing(region);
    regions_.push_back(region);
  }
}

// A byte holds something if it does for one of the pieces that share it.
void Memory::MarkMissing(const Region& region) {
  const auto bytes = static_cast<size_t>(region.end - region.begin);
  std::vector<uint8_t> missing;
  for (const Piece& piece : pieces_) {
    if (piece.original < region.original || piece.original + piece.bytes > region.original + bytes) continue;
    if (piece.bytes == bytes && piece.missing.empty()) return;
  }
  missing.assign(bytes, 1);
  for (const Piece& piece : pieces_) {
    if (piece.original < region.original || piece.original + piece.bytes > region.original + bytes) continue;
    uint8_t* at = missing.data() + (piece.original - region.original);
    for (size_t i = 0; i < piece.bytes; ++i) at[i] &= piece.missing.empty() ? 0 : piece.missing[i];
  }
  for (size_t i = 0; i < bytes; ++i) {
    if (missing[i] != 0) region.records[i].writer = kNobody;
  }
}

void* Memory::Threadgroup(const std::string& name, int line, size_t bytes, size_t alignment) {
  const std::string title = "threadgroup memory " + name;
  for (const Region& region : regions_) {
    if (region.threadgroup && region.line == line && region.name == title) return reinterpret_cast<void*>(region.begin);
  }
  threadgroup_bytes_ = RoundUp(threadgroup_bytes_, std::max(alignment, kThreadgroupAlignment)) + bytes;
  if (threadgroup_bytes_ > kMaxThreadgroupBytes) return nullptr;
  const Region* region = Declare(title, line, bytes);
  return region == nullptr ? nullptr : reinterpret_cast<void*>(region->begin);
}

void* Memory::ThreadArray(const std::string& name, int line, size_t bytes, size_t alignment, uint32_t group) {
  const std::string title = "array " + name;
  for (Region& region : regions_) {
    if (!region.threadgroup || region.line != line || region.name != title) continue;
    // What other threads wrote counts for nothing as it is; what this one did is gone.
    if (region.group == group) std::memset(region.records, 0, bytes * sizeof(Record));
    region.group = group;
    return reinterpret_cast<void*>(region.begin);
  }
  thread_bytes_ = RoundUp(thread_bytes_, alignment) + bytes;
  if (thread_bytes_ > kMaxThreadBytes) return nullptr;
  Region* region = Declare(title, line, bytes);
  if (region == nullptr) return nullptr;
  region->group = group;
  return reinterpret_cast<void*>(region->begin);
}

Memory::Region* Memory::Declare(const std::string& name, int line, size_t bytes) {
  next_ = RoundUp(next_, kAlignment);
  if (next_ + bytes + kThreadgroupGap > bytes_) return nullptr;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory_.data()) + next_;
  Region region = {begin, begin + bytes, true, true, nullptr, nullptr, name, line};
  region.records = reinterpret_cast<Record*>(records_.data()) + next_record_;
  next_record_ += bytes;
  next_ += bytes + kThreadgroupGap;
  regions_.push_back(region);
  return &regions_.back();
}

bool Memory::Contains(uintptr_t address) const {
  return address - reinterpret_cast<uintptr_t>(memory_.data()) < bytes_;
}

const Memory::Region* Memory::Find(uintptr_t address, size_t bytes) {
  const auto holds = [&](const Region& region) {
    return address >= region.begin && address < region.end && bytes <= region.end - address;
  };
  if (last_ < regions_.size() && holds(regions_[last_])) return &regions_[last_];
  for (size_t i = 0; i < regions_.size(); ++i) {
    if (!holds(regions_[i])) continue;
    last_ = i;
    return &regions_[i];
  }
  return nullptr;
}

std::string Memory::Describe(uintptr_t address, size_t bytes, Access access) const {
  uintptr_t best = UINTPTR_MAX;
  std::string text = std::to_string(bytes) + " bytes at an address that is no buffer's";
  const auto consider = [&](const std::string& name, uintptr_t begin, size_t size) {
    const uintptr_t end = begin + size;
    const uintptr_t distance = address < begin ? begin - address : address >= end ? address - end + 1 : 0;
    if (distance >= best) return;
    best = distance;
    text = std::to_string(bytes) + " bytes at byte " + (address < begin ? "-" : "") +
           std::to_string(address < begin ? begin - address : address - begin) + " of " + name + " (" +
           std::to_string(size) + " bytes)";
  };
  // Of pieces that share the memory, the one that was meant.
  const bool writes = access != Access::kRead && access != Access::kAtomicRead;
  for (const bool writable : {writes, !writes}) {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i].writable != writable) continue;
      consider(pieces_[i].name, reinterpret_cast<uintptr_t>(copies_[i]), pieces_[i].bytes);
    }
  }
  for (const Region& region : regions_) {
    if (region.threadgroup) consider(region.name, region.begin, region.end - region.begin);
  }
  return text;
}

std::string Memory::Other(uint64_t record) const { return geometry_.Describe(Group(record), Thread(record)); }

std::string Memory::CheckRead(Record& record, Access access, const Region& region, const Moment& moment) const {
  const uint64_t now = Pack(moment, region.threadgroup, kOne);
  const uint64_t writer = record.writer;
  if (writer == kNobody) return ", which nobody has written";
  const bool written = writer != 0 && (!region.threadgroup || Group(writer) == moment.group);
  if (region.threadgroup && !written) return ", which no thread has written";
  // Atomic operations are not ordered by barriers.
  if (access != Access::kRead) return "";
  if (written && (Group(writer) != moment.group || !Ordered(writer, now))) {
    return ", which " + Other(writer) + " wrote with no barrier in between";
  }
  const uint64_t reader = record.reader;
  Readers readers = kOne;
  if (reader != 0 && !region.threadgroup && (ReadersOf(reader) == kManyGroups || Group(reader) != moment.group)) {
    readers = kManyGroups;
  } else if (reader != 0 && Group(reader) == moment.group && !Ordered(reader, now)) {
    const bool in_simdgroup = ReadersOf(reader) != kManyInGroup && SameSimdgroup(reader, now);
    readers = in_simdgroup ? kManyInSimdgroup : kManyInGroup;
  }  // else earlier readers are ordered before whatever is ordered after this one
  record.reader = Pack(moment, region.threadgroup, readers);
  return "";
}

std::string Memory::CheckWrite(Record& record, Access access, const Region& region, const Moment& moment) const {
  if (!region.writable) return ", which is constant";
  const uint64_t now = Pack(moment, region.threadgroup, kOne);
  const uint64_t reader = record.reader;
  record.writer = now;
  if (access != Access::kWrite || reader == 0) return "";
  const bool same_group = Group(reader) == moment.group;
  if (region.threadgroup && !same_group) return "";
  if (!same_group || !Ordered(reader, now)) {
    const std::string other = Thread(reader) == moment.thread && same_group ? "another thread" : Other(reader);
    return ", which " + other + " read with no barrier in between";
  }
  return "";
}

// The common cases of CheckRead and CheckWrite, for all bytes: false where one is not, or is wrong.
bool Memory::IsPlain(Record* record, size_t bytes, bool reads, const Region& region, const Moment& moment) {
  const uint64_t now = Pack(moment, region.threadgroup, kOne);
  for (Record* const end = record + bytes; record != end; ++record) {
    const uint64_t writer = record->writer, reader = record->reader;
    if (reads) {
      if (writer != now && (writer != 0 || region.threadgroup)) return false;
      if (reader == 0) {
        record->reader = now;
      } else if (reader != now && (region.threadgroup || ReadersOf(reader) != kManyGroups)) {
        return false;
      }
    } else {
      if (reader != 0 && reader != now) return false;
      record->writer = now;
    }
  }
  return true;
}

std::string Memory::Check(uintptr_t address, size_t bytes, Access access, const Moment& moment) {
  const Region* region = Find(address, bytes);
  if (region == nullptr) return ", which is out of bounds";
  if (bytes <= 16 && (bytes & (bytes - 1)) == 0 && access >= Access::kAtomicRead && address % bytes != 0) {
    return ", which is not aligned";
  }
  Record* record = region->records + (address - region->begin);
  const bool plain = access <= Access::kWrite && (access == Access::kRead || region->writable) &&
                     IsPlain(record, bytes, access == Access::kRead, *region, moment);
  for (size_t i = 0; i < bytes && !plain; ++i, ++record) {
    std::string wrong;
    if (access == Access::kRead || access == Access::kAtomicRead || access == Access::kAtomicUpdate) {
      wrong = CheckRead(*record, access, *region, moment);
    }
    if (wrong.empty() && access != Access::kRead && access != Access::kAtomicRead) {
      wrong = CheckWrite(*record, access, *region, moment);
    }
    if (!wrong.empty()) return wrong;
  }
  const bool reads = access == Access::kRead || access == Access::kAtomicRead;
  for (size_t page = PageOf(address); page <= PageOf(address + bytes - 1); ++page) {
    pages_[page] |= reads ? kTouched : kTouched | kWritten;
  }
  return "";
}

size_t Memory::PageOf(uintptr_t address) const {
  return (address - reinterpret_cast<uintptr_t>(memory_.data())) / kPage;
}

void Memory::CopyBack() const {
  for (const Region& region : regions_) {
    if (region.threadgroup || !region.writable) continue;
    for (uintptr_t begin = region.begin, end = begin; begin < region.end; begin = end) {
      end = std::min(region.end, (begin / kPage + 1) * kPage);
      if ((pages_[PageOf(begin)] & kWritten) == 0) continue;
      for (uintptr_t at = begin; at < end; ++at) {
        const size_t offset = at - region.begin;
        if (WasWritten(region.records[offset].writer))
          region.original[offset] = *reinterpret_cast<const std::byte*>(at);
      }
    }
  }
}

std::vector<Touched> Memory::WhatWasTouched() const {
  std::vector<Touched> touched;
  for (const Region& region : regions_) {
    if (region.threadgroup) continue;
    for (uintptr_t begin = region.begin, end = begin; begin < region.end; begin = end) {
      end = std::min(region.end, (begin / kPage + 1) * kPage);
      if (pages_[PageOf(begin)] == 0) continue;
      for (uintptr_t at = begin; at < end; ++at) {
        const size_t offset = at - region.begin;
        const Record& record = region.records[offset];
        const bool written = WasWritten(record.writer);
        if (!written && record.reader == 0) continue;
        const std::byte* original = region.original + offset;
        if (!touched.empty() && touched.back().end == original && touched.back().written == written) {
          ++touched.back().end;
        } else {
          touched.push_back({original, original + 1, written});
        }
      }
    }
  }
  return touched;
}

}  // namespace pjrt_metal::software
