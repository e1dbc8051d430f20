// PJRT_Memory: a device's memory kinds, and the extension that describes them without a client.
#include <array>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/objects.h"

namespace pjrt_metal {

MemoryObject& ToMemory(PJRT_Memory* memory, const char* name) {
  return Required(static_cast<MemoryObject*>(memory), name);
}

namespace {

// In the order of MemoryKind, whose values are the kind ids; the default first.
constexpr std::array<PJRT_MemoryDescription, 3> kDescriptions = {{
    {"device", static_cast<int>(MemoryKind::kDevice)},
    {"pinned_host", static_cast<int>(MemoryKind::kPinnedHost)},
    {"unpinned_host", static_cast<int>(MemoryKind::kUnpinnedHost)},
}};

const PJRT_MemoryDescription& Describe(PJRT_Memory* memory) {
  return kDescriptions[static_cast<size_t>(ToMemory(memory, "memory").space->kind())];
}

void Id(PJRT_Memory_Id_Args& args) { args.id = ToMemory(args.memory, "memory").space->id(); }

void Kind(PJRT_Memory_Kind_Args& args) {
  const std::string_view kind = Describe(args.memory).kind;
  args.kind = kind.data();
  args.kind_size = kind.size();
}

void KindId(PJRT_Memory_Kind_Id_Args& args) { args.kind_id = Describe(args.memory).kind_id; }

void DebugString(PJRT_Memory_DebugString_Args& args) {
  const std::string& text = ToMemory(args.memory, "memory").text;
  args.debug_string = text.data();
  args.debug_string_size = text.size();
}

void ToString(PJRT_Memory_ToString_Args& args) {
  const std::string& text = ToMemory(args.memory, "memory").text;
  args.to_string = text.data();
  args.to_string_size = text.size();
}

void AddressableByDevices(PJRT_Memory_AddressableByDevices_Args& args) {
  args.devices = &ToMemory(args.memory, "memory").device;
  args.num_devices = 1;
}

void DeviceMemoryDescriptions(PJRT_DeviceDescription_MemoryDescriptions_Args& args) {
  Required(args.device_description, "device_description");
  static constexpr std::array<const PJRT_MemoryDescription*, kDescriptions.size()> kHandles = {
      &kDescriptions[0], &kDescriptions[1], &kDescriptions[2]};
  args.memory_descriptions = kHandles.data();
  args.num_memory_descriptions = kHandles.size();
  args.default_memory_index = 0;
}

void DescriptionKind(PJRT_MemoryDescription_Kind_Args& args) {
  const PJRT_MemoryDescription& memory = Required(args.memory_description, "memory_description");
  args.kind = memory.kind.data();
  args.kind_size = memory.kind.size();
  args.kind_id = memory.kind_id;
}

}  // namespace

void FillMemoryFunctions(PJRT_Api& api) {
  api.PJRT_Memory_Id = Entry<Id>;
  api.PJRT_Memory_Kind = Entry<Kind>;
  api.PJRT_Memory_Kind_Id = Entry<KindId>;
  api.PJRT_Memory_DebugString = Entry<DebugString>;
  api.PJRT_Memory_ToString = Entry<ToString>;
  api.PJRT_Memory_AddressableByDevices = Entry<AddressableByDevices>;
}

PJRT_Extension_Base* MemoryDescriptionsExtension(PJRT_Extension_Base* next) {
  static PJRT_MemoryDescriptions_Extension extension = {
      {StructSize<PJRT_MemoryDescriptions_Extension>(), PJRT_Extension_Type_MemoryDescriptions, next},
      Entry<DeviceMemoryDescriptions>,
      Entry<DescriptionKind>,
  };
  return &extension.base;
}

}  // namespace pjrt_metal
