// A Metal device's memory: what an allocation is made of.
#pragma once

#include <atomic>
#include <memory>

#include "csrc/metal/residency.h"
#include "csrc/runtime/device.h"

namespace pjrt_metal::metal {

// Bytes of the allocations that live.
struct MemoryCounts {
  std::atomic<uint64_t> own = 0, wrapped = 0;
};

// One buffer.
class MetalAllocation : public Allocation {
 public:
  // Memory that somebody else owns.
  MetalAllocation(Ref buffer, std::byte* data, size_t size, std::shared_ptr<MemoryCounts> counts);
  // Memory of `residency`'s device.
  MetalAllocation(Ref buffer, size_t size, std::shared_ptr<MemoryCounts> counts, std::shared_ptr<Residency> residency);
  ~MetalAllocation() override;

  Id buffer() const { return buffer_.get(); }
  void SetIdle(bool idle) override {
    if (residency_) residency_->SetIdle(buffer_.get(), idle);
  }

 private:
  Ref buffer_;
  std::shared_ptr<MemoryCounts> counts_;
  std::shared_ptr<Residency> residency_;  // none of memory that somebody else owns
};

// What one device allocates. Thread-safe.
class Memory {
 public:
  // `kind` names the device in errors; `working_set`: the bytes it can use without paging; `largest`: of one buffer.
  Memory(Id device, Id queue, std::string kind, uint64_t working_set, uint64_t largest);

  // Uninitialized; throws ResourceExhausted, also for what Metal would grant beyond the working set.
  AllocationRef Allocate(size_t bytes);
  // nullptr if the memory is not whole pages, or Metal refuses.
  AllocationRef Wrap(void* data, size_t bytes);
  Residency& residency() { return *residency_; }

 private:
  Ref device_;
  std::string kind_;
  uint64_t working_set_, largest_;
  std::shared_ptr<MemoryCounts> counts_ = std::make_shared<MemoryCounts>();
  std::shared_ptr<Residency> residency_;
};

}  // namespace pjrt_metal::metal
