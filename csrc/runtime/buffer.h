// A device array: dense memory, a type, and the event of its definition.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "csrc/runtime/device.h"
#include "csrc/runtime/dtype.h"
#include "csrc/runtime/event.h"

namespace pjrt_metal {

class LogicalDevice;
class MemorySpace;

// The memory and its readiness, shared by the Buffer, by executions in flight and by external references.
struct Storage {
  AllocationRef allocation;
  EventRef defined;  // set when the contents are there (or with the error of what should have made them)
  std::function<void()> on_release;  // e.g. tells the host that its zero-copy array is no longer used
  ~Storage();
};
using StorageRef = std::shared_ptr<Storage>;

class Buffer {
 public:
  Buffer(MemorySpace* memory, DType dtype, std::vector<int64_t> dims, StorageRef storage);
  // A layout is always dense; minor_to_major is {rank-1, ..., 0} unless the caller asked otherwise.
  Buffer(MemorySpace* memory, DType dtype, std::vector<int64_t> dims, std::vector<int64_t> minor_to_major,
         StorageRef storage);

  DType dtype() const { return dtype_; }
  std::span<const int64_t> dims() const { return dims_; }
  std::span<const int64_t> minor_to_major() const { return minor_to_major_; }
  MemorySpace* memory() const { return memory_; }
  size_t bytes() const { return bytes_; }

  // Throws InvalidArgument ("buffer was deleted or donated") after Delete or Donate.
  StorageRef storage() const;
  bool is_deleted() const;
  void Delete();
  // Takes the memory for an execution that donates it; false if external references or other holders forbid it.
  StorageRef Donate();

  void IncreaseExternalReferences();
  void DecreaseExternalReferences();  // throws InvalidArgument below zero

 private:
  MemorySpace* memory_;
  DType dtype_;
  std::vector<int64_t> dims_;
  std::vector<int64_t> minor_to_major_;
  size_t bytes_;
  mutable std::mutex mutex_;
  StorageRef storage_;
  // External users (dlpack, zero-copy numpy views) keep the memory past Delete.
  std::vector<StorageRef> external_;
};

// Copies between a strided host array and dense memory in `minor_to_major` order. `byte_strides` empty: dense
// row-major. Used for both directions; sub-byte dtypes are one byte an element on both sides.
void CopyStrided(const std::byte* source, std::span<const int64_t> source_byte_strides, std::byte* destination,
                 std::span<const int64_t> destination_byte_strides, std::span<const int64_t> dims,
                 size_t element_bytes);
// Byte strides of a dense array whose dimensions are ordered from minor to major.
std::vector<int64_t> DenseStrides(std::span<const int64_t> dims, std::span<const int64_t> minor_to_major,
                                  size_t element_bytes);

}  // namespace pjrt_metal
