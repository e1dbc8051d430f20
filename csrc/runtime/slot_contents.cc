#include "csrc/runtime/slot_contents.h"

#include <string>

namespace pjrt_metal {
namespace {

void CountUses(const Sequence& sequence, std::vector<uint32_t>& uses) {
  for (const Step& step : sequence) {
    for (const uint32_t slot : step.slots) ++uses[slot];
    for (const Sequence& body : step.bodies) CountUses(body, uses);
  }
}

}  // namespace

SlotContents::SlotContents(const Program& program, std::span<const Binding> bindings, Encoder& encoder)
    : program_(program), bindings_(bindings), encoder_(encoder), uses_(program.slots.size()) {
  CountUses(program.body, uses_);
}

uint32_t SlotContents::Owner(const Program& program, size_t slot) {
  const SlotKind kind = program.slots[slot].kind;
  if (kind == SlotKind::kParameter || kind == SlotKind::kConstant) return 1;
  return static_cast<uint32_t>(slot) + 2;
}

// What is given comes last: an output may stand in a donated parameter's memory.
void SlotContents::Begin() {
  for (const bool given : {false, true}) {
    for (size_t i = 0; i < bindings_.size(); ++i) {
      if ((Owner(program_, i) == 1) == given) encoder_.SetContents(bindings_[i], given);
    }
  }
}

void SlotContents::Iterate(const Step& loop) {
  std::vector<uint32_t> inside(uses_.size());
  for (const uint32_t slot : loop.slots) ++inside[slot];
  for (const Sequence& body : loop.bodies) CountUses(body, inside);
  for (size_t i = 0; i < inside.size(); ++i) {
    if (program_.slots[i].kind == SlotKind::kArena && inside[i] > 0 && inside[i] == uses_[i]) {
      encoder_.SetContents(bindings_[i], false);
    }
  }
}

void SlotContents::End() {
  for (size_t i = 0; i < bindings_.size(); ++i) {
    if (program_.slots[i].kind != SlotKind::kOutput) continue;
    encoder_.CheckContents(bindings_[i], program_.name + ": output " + std::to_string(program_.slots[i].index));
  }
}

void SlotContents::BeforeHostCall(const Step& call) {
  for (uint32_t i = 0; i < call.operands; ++i) {
    encoder_.CheckContents(bindings_[call.slots[i]], "operand " + std::to_string(i) + " of " + call.target);
  }
}

void SlotContents::AfterHostCall(const Step& call) {
  for (size_t i = call.operands; i < call.slots.size(); ++i) encoder_.SetContents(bindings_[call.slots[i]], true);
}

void SlotContents::BeforeHostRead(uint32_t slot) {
  encoder_.CheckContents(bindings_[slot], program_.name + ": what decides the next step");
}

}  // namespace pjrt_metal
