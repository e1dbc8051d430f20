// PJRT_Device and PJRT_DeviceDescription.
#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/objects.h"

struct PJRT_AsyncTrackingEvent {
  PJRT_METAL_HANDLE(PJRT_AsyncTrackingEvent)
  std::string description;
};

PJRT_DeviceDescription::PJRT_DeviceDescription(int id, std::string kind, const std::string& target)
    : id(id),
      kind(std::move(kind)),
      debug_string("METAL:" + std::to_string(id) + " (" + this->kind + ")"),
      text("MetalDevice(id=" + std::to_string(id) + ")") {
  attributes.Add("target", target);
}

namespace pjrt_metal {
namespace {

PJRT_DeviceDescription& Checked(PJRT_DeviceDescription* description) {
  return Required(description, "device_description");
}
PJRT_Device& Checked(PJRT_Device* device) { return Required(device, "device"); }

void Id(PJRT_DeviceDescription_Id_Args& args) { args.id = Checked(args.device_description).id; }

void ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args& args) {
  Checked(args.device_description);
  args.process_index = 0;
}

void DescriptionAttributes(PJRT_DeviceDescription_Attributes_Args& args) {
  const auto values = Checked(args.device_description).attributes.values();
  args.attributes = values.data();
  args.num_attributes = values.size();
}

void Kind(PJRT_DeviceDescription_Kind_Args& args) {
  const std::string& kind = Checked(args.device_description).kind;
  args.device_kind = kind.data();
  args.device_kind_size = kind.size();
}

void DebugString(PJRT_DeviceDescription_DebugString_Args& args) {
  const std::string& text = Checked(args.device_description).debug_string;
  args.debug_string = text.data();
  args.debug_string_size = text.size();
}

void ToString(PJRT_DeviceDescription_ToString_Args& args) {
  const std::string& text = Checked(args.device_description).text;
  args.to_string = text.data();
  args.to_string_size = text.size();
}

void GetDescription(PJRT_Device_GetDescription_Args& args) {
  args.device_description = Checked(args.device).description;
}

void IsAddressable(PJRT_Device_IsAddressable_Args& args) {
  Checked(args.device);
  args.is_addressable = true;
}

void LocalHardwareId(PJRT_Device_LocalHardwareId_Args& args) {
  args.local_hardware_id = Checked(args.device).description->id;
}

void AddressableMemories(PJRT_Device_AddressableMemories_Args& args) {
  const auto& handles = Checked(args.device).memory_handles;
  args.memories = handles.data();
  args.num_memories = handles.size();
}

void DefaultMemory(PJRT_Device_DefaultMemory_Args& args) { args.memory = Checked(args.device).memory_handles.front(); }

// Each statistic is a value and, after it, whether it is set; clients of other versions have fewer.
#define PJRT_METAL_SET_STATISTIC(name, known, number) \
  if (PJRT_METAL_HAS(args, name##_is_set)) {          \
    args.name = (number);                             \
    args.name##_is_set = (known);                     \
  }

void GetMemoryStats(PJRT_Device_MemoryStats_Args& args) {
  const MemoryStats stats = Checked(args.device).device->allocator().stats();
  args.bytes_in_use = stats.bytes_in_use;
  PJRT_METAL_SET_STATISTIC(peak_bytes_in_use, true, stats.peak_bytes_in_use)
  PJRT_METAL_SET_STATISTIC(num_allocs, true, stats.num_allocs)
  PJRT_METAL_SET_STATISTIC(largest_alloc_size, true, stats.largest_alloc_size)
  PJRT_METAL_SET_STATISTIC(bytes_limit, true, stats.bytes_limit)
  PJRT_METAL_SET_STATISTIC(bytes_reserved, true, stats.bytes_reserved)
  PJRT_METAL_SET_STATISTIC(peak_bytes_reserved, true, stats.peak_bytes_reserved)
  PJRT_METAL_SET_STATISTIC(bytes_reservable_limit, false, 0)
  PJRT_METAL_SET_STATISTIC(largest_free_block_bytes, false, 0)
  PJRT_METAL_SET_STATISTIC(pool_bytes, true, stats.pool_bytes)
  PJRT_METAL_SET_STATISTIC(peak_pool_bytes, true, stats.peak_pool_bytes)
  PJRT_METAL_SET_STATISTIC(peak_allocated_bytes, false, 0)
}

#undef PJRT_METAL_SET_STATISTIC

void ClearMemoryStats(PJRT_Device_ClearMemoryStats_Args& args) {
  Checked(args.device);
  throw Unimplemented("peak memory statistics cannot be reset");
}

// Launches have no ids here, so none is found that could be poisoned.
void PoisonExecution(PJRT_Device_PoisonExecution_Args& args) {
  Checked(args.device);
  ErrorFromClient(args.error_code, args.error_message, args.error_message_size);
  args.poisoned = false;
}

// The description is the device's; the deleter has nothing to free.
void GetAttributes(PJRT_Device_GetAttributes_Args& args) {
  const auto values = Checked(args.device).description->attributes.values();
  args.attributes = values.data();
  args.num_attributes = values.size();
  args.device_attributes = nullptr;
  args.attributes_deleter = [](PJRT_Device_Attributes*) {};
}

void CreateAsyncTrackingEvent(PJRT_Device_CreateAsyncTrackingEvent_Args& args) {
  Checked(args.device);
  args.event = new PJRT_AsyncTrackingEvent{std::string(Text(args.description, args.description_size, "description"))};
}

void DestroyAsyncTrackingEvent(PJRT_AsyncTrackingEvent_Destroy_Args& args) { DestroyHandle(args.event, "event"); }

}  // namespace

void FillDeviceFunctions(PJRT_Api& api) {
  api.PJRT_DeviceDescription_Id = Entry<Id>;
  api.PJRT_DeviceDescription_ProcessIndex = Entry<ProcessIndex>;
  api.PJRT_DeviceDescription_Attributes = Entry<DescriptionAttributes>;
  api.PJRT_DeviceDescription_Kind = Entry<Kind>;
  api.PJRT_DeviceDescription_DebugString = Entry<DebugString>;
  api.PJRT_DeviceDescription_ToString = Entry<ToString>;
  api.PJRT_Device_GetDescription = Entry<GetDescription>;
  api.PJRT_Device_IsAddressable = Entry<IsAddressable>;
  api.PJRT_Device_LocalHardwareId = Entry<LocalHardwareId>;
  api.PJRT_Device_AddressableMemories = Entry<AddressableMemories>;
  api.PJRT_Device_DefaultMemory = Entry<DefaultMemory>;
  api.PJRT_Device_MemoryStats = Entry<GetMemoryStats, PJRT_METAL_THROUGH(PJRT_Device_MemoryStats_Args, bytes_in_use)>;
  api.PJRT_Device_ClearMemoryStats = Entry<ClearMemoryStats>;
  api.PJRT_Device_PoisonExecution =
      Entry<PoisonExecution, PJRT_METAL_THROUGH(PJRT_Device_PoisonExecution_Args, poisoned)>;
  api.PJRT_Device_GetAttributes = Entry<GetAttributes>;
  api.PJRT_Device_CreateAsyncTrackingEvent = Entry<CreateAsyncTrackingEvent>;
  api.PJRT_AsyncTrackingEvent_Destroy = Entry<DestroyAsyncTrackingEvent>;
}

}  // namespace pjrt_metal
