#include "csrc/runtime/buffer.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "csrc/runtime/forked.h"

namespace pjrt_metal {
namespace {

std::vector<int64_t> RowMajor(size_t rank) {
  std::vector<int64_t> order(rank);
  for (size_t i = 0; i < rank; ++i) order[i] = static_cast<int64_t>(rank - 1 - i);
  return order;
}

struct Loop {
  int64_t extent, source, destination;  // strides in bytes
};

template <size_t kBytes>
void CopyRow(const std::byte* source, std::byte* destination, const Loop& loop) {
  for (int64_t i = 0; i < loop.extent; ++i) {
    std::memcpy(destination + i * loop.destination, source + i * loop.source, kBytes);
  }
}

void CopyLoops(const std::byte* source, std::byte* destination, std::span<const Loop> loops, size_t bytes) {
  if (loops.empty()) {
    std::memcpy(destination, source, bytes);
    return;
  }
  const Loop& loop = loops.front();
  if (loops.size() == 1) {
    switch (bytes) {
      case 1:
        return CopyRow<1>(source, destination, loop);
      case 2:
        return CopyRow<2>(source, destination, loop);
      case 4:
        return CopyRow<4>(source, destination, loop);
      case 8:
        return CopyRow<8>(source, destination, loop);
      default:
        break;
    }
  }
  for (int64_t i = 0; i < loop.extent; ++i) {
    CopyLoops(source + i * loop.source, destination + i * loop.destination, loops.subspan(1), bytes);
  }
}

}  // namespace

Storage::~Storage() {
  allocation.reset();  // a device lets go of memory before its owner does
  if (on_release) on_release();
}

Buffer::Buffer(MemorySpace* memory, DType dtype, std::vector<int64_t> dims, StorageRef storage)
    : Buffer(memory, dtype, dims, RowMajor(dims.size()), std::move(storage)) {}

Buffer::Buffer(MemorySpace* memory, DType dtype, std::vector<int64_t> dims, std::vector<int64_t> minor_to_major,
               StorageRef storage)
    : memory_(memory),
      dtype_(dtype),
      dims_(std::move(dims)),
      minor_to_major_(std::move(minor_to_major)),
      bytes_(DenseBytes(dtype_, dims_)),
      storage_(std::move(storage)) {}

StorageRef Buffer::storage() const {
  const std::lock_guard lock(mutex_);
  if (!storage_) throw InvalidArgument("the buffer was deleted or donated");
  return storage_;
}

bool Buffer::is_deleted() const {
  const std::lock_guard lock(mutex_);
  return storage_ == nullptr;
}

void Buffer::Delete() {
  StorageRef storage;  // released outside the lock: on_release may run the host's code
  const std::lock_guard lock(mutex_);
  storage.swap(storage_);
  if (IsForked() && storage) new StorageRef(std::move(storage));  // who frees memory may have been at it
}

StorageRef Buffer::Donate() {
  const std::lock_guard lock(mutex_);
  if (!storage_ || !external_.empty()) return nullptr;
  return std::move(storage_);
}

void Buffer::IncreaseExternalReferences() {
  const StorageRef current = storage();
  const std::lock_guard lock(mutex_);
  external_.push_back(current);
}

void Buffer::DecreaseExternalReferences() {
  StorageRef released;
  const std::lock_guard lock(mutex_);
  if (external_.empty()) throw InvalidArgument("the buffer has no external references to take back");
  released = std::move(external_.back());
  external_.pop_back();
}

void CopyStrided(const std::byte* source, std::span<const int64_t> source_byte_strides, std::byte* destination,
                 std::span<const int64_t> destination_byte_strides, std::span<const int64_t> dims,
                 size_t element_bytes) {
  std::vector<int64_t> dense;
  if (source_byte_strides.empty() || destination_byte_strides.empty()) {
    dense = DenseStrides(dims, RowMajor(dims.size()), element_bytes);
  }
  const std::span<const int64_t> from = source_byte_strides.empty() ? dense : source_byte_strides;
  const std::span<const int64_t> to = destination_byte_strides.empty() ? dense : destination_byte_strides;
  std::vector<Loop> loops;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return;
    if (dims[i] > 1) loops.push_back({dims[i], from[i], to[i]});
  }
  // Destination order, so that writes are sequential; then neighbours that walk both sides as one are merged.
  std::stable_sort(loops.begin(), loops.end(),
                   [](const Loop& a, const Loop& b) { return std::abs(a.destination) > std::abs(b.destination); });
  size_t bytes = element_bytes;
  while (!loops.empty() && loops.back().source == static_cast<int64_t>(bytes) &&
         loops.back().destination == static_cast<int64_t>(bytes)) {
    bytes *= static_cast<size_t>(loops.back().extent);
    loops.pop_back();
  }
  CopyLoops(source, destination, loops, bytes);
}

std::vector<int64_t> DenseStrides(std::span<const int64_t> dims, std::span<const int64_t> minor_to_major,
                                  size_t element_bytes) {
  std::vector<int64_t> strides(dims.size());
  uint64_t stride = element_bytes;  // unsigned: an empty array's other dimensions may be of any size
  for (const int64_t dim : minor_to_major) {
    strides[static_cast<size_t>(dim)] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(dims[static_cast<size_t>(dim)], 1));
  }
  return strides;
}

}  // namespace pjrt_metal
