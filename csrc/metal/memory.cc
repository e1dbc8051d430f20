#include "csrc/metal/memory.h"

#include <unistd.h>

#include <algorithm>

namespace pjrt_metal::metal {

MetalAllocation::MetalAllocation(Ref buffer, std::byte* data, size_t size, std::shared_ptr<MemoryCounts> counts)
    : Allocation(data, size), buffer_(std::move(buffer)), counts_(std::move(counts)) {
  counts_->wrapped += size;
}

MetalAllocation::MetalAllocation(Ref buffer, size_t size, std::shared_ptr<MemoryCounts> counts,
                                 std::shared_ptr<Residency> residency)
    : Allocation(static_cast<std::byte*>(Send<Message::kContents>(buffer.get())), size),
      buffer_(std::move(buffer)),
      counts_(std::move(counts)),
      residency_(std::move(residency)) {
  counts_->own += size;
  residency_->Add(buffer_.get());
}

MetalAllocation::~MetalAllocation() {
  const Pool pool;  // memory is given up on any thread
  (residency_ ? counts_->own : counts_->wrapped) -= size();
  if (residency_) residency_->Remove(buffer_.get());
  buffer_ = Ref();
}

Memory::Memory(Id device, Id queue, std::string kind, uint64_t working_set, uint64_t largest)
    : device_(Ref::Retain(device)),
      kind_(std::move(kind)),
      working_set_(working_set),
      largest_(largest),
      residency_(std::make_shared<Residency>(device, queue)) {}

AllocationRef Memory::Allocate(size_t bytes) {
  const Pool pool;
  residency_->Commit(/*removals_only=*/true);
  // Metal has no empty buffers.
  const size_t length = std::max<size_t>(bytes, 1);
  // Of this whole process, but for memory that was there before and is only lent to the GPU. Beyond its working set the
  // GPU pages, or its submissions fail. Should Metal not count what is lent, our own remains.
  const uint64_t counted = Send<Message::kCurrentAllocatedSize>(device_.get());
  const uint64_t allocated = std::max(counted - std::min<uint64_t>(counted, counts_->wrapped), counts_->own.load());
  Ref buffer;
  if (length <= largest_ && allocated <= working_set_ && length <= working_set_ - allocated) {
    buffer = Ref::Adopt(Send<Message::kNewBufferWithLength>(device_.get(), length, kStorageModeShared));
  }
  if (!buffer) {
    throw ResourceExhausted(kind_ + ": no memory for a buffer of " + std::to_string(bytes) + " bytes (" +
                            std::to_string(allocated) + " of the GPU's working set of " + std::to_string(working_set_) +
                            " are in use by this process; the largest buffer is " + std::to_string(largest_) + ")");
  }
  return std::make_shared<MetalAllocation>(std::move(buffer), bytes, counts_, residency_);
}

AllocationRef Memory::Wrap(void* data, size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (bytes == 0 || bytes > largest_ - page || reinterpret_cast<uintptr_t>(data) % page != 0) return nullptr;
  const Pool pool;
  // Metal takes whole pages; the rest of the last one is mapped but no kernel touches it.
  const size_t length = (bytes + page - 1) / page * page;
  Ref buffer =
      Ref::Adopt(Send<Message::kNewBufferWithBytesNoCopy>(device_.get(), data, length, kStorageModeShared, nullptr));
  if (!buffer) return nullptr;
  return std::make_shared<MetalAllocation>(std::move(buffer), static_cast<std::byte*>(data), bytes, counts_);
}

}  // namespace pjrt_metal::metal
