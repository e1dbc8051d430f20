// Tells a device that checks reads (the strict software device) what a program's slots hold as it runs.
#pragma once

#include <span>

#include "csrc/runtime/device.h"
#include "csrc/runtime/program.h"

namespace pjrt_metal {

// A parameter's or constant's bytes are there from the start; an output's and an arena slot's when they are written. A
// slot that only a loop's condition and body use begins each iteration with nothing, since what is carried from one to
// the next is also used outside.
class SlotContents {
 public:
  // `bindings`: one a slot. All three are referred to.
  SlotContents(const Program& program, std::span<const Binding> bindings, Encoder& encoder);
  void Begin();
  void Iterate(const Step& loop);
  // Every output was written whole.
  void End();
  // Before and after the host calls a function.
  void BeforeHostCall(const Step& call);
  void AfterHostCall(const Step& call);
  // The host reads the slot, to decide what is next.
  void BeforeHostRead(uint32_t slot);

  // Binding::owner of a slot. Parameters and constants have one: an array may be given several times.
  static uint32_t Owner(const Program& program, size_t slot);

 private:
  const Program& program_;
  std::span<const Binding> bindings_;
  Encoder& encoder_;
  std::vector<uint32_t> uses_;  // of each slot, in the whole program
};

}  // namespace pjrt_metal
