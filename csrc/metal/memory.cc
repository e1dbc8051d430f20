#include "csrc/metal/memory.h"

#include <unistd.h>

#include <algorithm>

#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

// A heap takes whole pages. Smaller memory is a plain buffer, many of which Metal puts into one page.
constexpr size_t kHeapFrom = 16 << 10;
// Of a heap's buffer: what it inherits from the heap, said again because Metal compares them.
constexpr uint64_t kHeapOptions = kStorageModeShared | kHazardTrackingTracked;

}  // namespace

MetalAllocation::MetalAllocation(Ref heap, Ref buffer, size_t size, std::shared_ptr<Residency> residency)
    : Allocation(static_cast<std::byte*>(Send<Message::kContents>(buffer.get())), size),
      heap_(std::move(heap)),
      buffer_(std::move(buffer)),
      residency_(std::move(residency)) {
  residency_->Add(resident());
}

MetalAllocation::~MetalAllocation() {
  if (residency_) residency_->Remove(resident());
}

Ref MetalAllocation::View(size_t offset, size_t bytes) const {
  if (!heap_ || bytes == 0 || offset > size_ || bytes > size_ - offset) return Ref();
  const Pool pool;
  const Id device = Send<Message::kDeviceOfHeap>(heap_.get());
  const SizeAndAlign placed = Send<Message::kHeapBufferSizeAndAlign>(device, bytes, kHeapOptions);
  const uint64_t heap_bytes = Send<Message::kHeapSize>(heap_.get());
  if (offset % placed.align != 0 || placed.size > heap_bytes - offset) return Ref();
  return Ref::Adopt(Send<Message::kNewBufferAtOffset>(heap_.get(), bytes, kHeapOptions, offset));
}

Memory::Memory(Id device, Id queue, std::string kind, uint64_t working_set, uint64_t largest)
    : device_(Ref::Retain(device)),
      kind_(std::move(kind)),
      working_set_(working_set),
      largest_(largest),
      residency_(std::make_shared<Residency>(device, queue)) {}

Ref Memory::NewHeap(size_t length) const {
  const Ref descriptor = New(Class::kMTLHeapDescriptor);
  Send<Message::kSetHeapType>(descriptor.get(), kHeapTypePlacement);
  Send<Message::kSetHeapStorageMode>(descriptor.get(), kHeapStorageModeShared);
  // Untracked is a heap's default.
  Send<Message::kSetHeapHazardTrackingMode>(descriptor.get(), kHeapHazardTrackingTracked);
  Send<Message::kSetHeapSize>(descriptor.get(),
                              Send<Message::kHeapBufferSizeAndAlign>(device_.get(), length, kHeapOptions).size);
  return Ref::Adopt(Send<Message::kNewHeap>(device_.get(), descriptor.get()));
}

AllocationRef Memory::Allocate(size_t bytes) {
  const Pool pool;
  residency_->Commit(/*removals_only=*/true);
  // Metal has no empty buffers.
  const size_t length = std::max<size_t>(bytes, 1);
  // Of this whole process. Beyond its working set the GPU pages, or its submissions fail.
  const uint64_t allocated = Send<Message::kCurrentAllocatedSize>(device_.get());
  Ref heap, buffer;
  if (length <= largest_ && allocated <= working_set_ && length <= working_set_ - allocated) {
    if (length >= kHeapFrom) {
      heap = NewHeap(length);
      if (heap) buffer = Ref::Adopt(Send<Message::kNewBufferAtOffset>(heap.get(), length, kHeapOptions, uint64_t{0}));
    }
    if (!buffer) {
      if (length >= kHeapFrom) LogPhase("metal: no heap", 0, std::to_string(length) + " bytes; a plain buffer then");
      heap = Ref();
      buffer = Ref::Adopt(Send<Message::kNewBufferWithLength>(device_.get(), length, kStorageModeShared));
    }
  }
  if (!buffer) {
    throw ResourceExhausted(kind_ + ": no memory for a buffer of " + std::to_string(bytes) + " bytes (" +
                            std::to_string(allocated) + " of the GPU's working set of " + std::to_string(working_set_) +
                            " are in use by this process; the largest buffer is " + std::to_string(largest_) + ")");
  }
  return std::make_shared<MetalAllocation>(std::move(heap), std::move(buffer), bytes, residency_);
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
  return std::make_shared<MetalAllocation>(std::move(buffer), static_cast<std::byte*>(data), bytes);
}

}  // namespace pjrt_metal::metal
