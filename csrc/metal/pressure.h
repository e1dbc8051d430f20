// The system's notice that memory is short.
#pragma once

#include <functional>

namespace pjrt_metal::metal {

// Calls `release`, on a thread of the system's, whenever macOS says that memory is short, until this object goes; its
// destructor waits for a call under way.
class PressureWatch {
 public:
  explicit PressureWatch(std::function<void()> release);
  ~PressureWatch();
  PressureWatch(const PressureWatch&) = delete;
  PressureWatch& operator=(const PressureWatch&) = delete;

 private:
  std::function<void()> release_;
};

}  // namespace pjrt_metal::metal
