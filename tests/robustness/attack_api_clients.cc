// What asks about clients, devices, memories, topologies and layouts, and what makes events.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <string>

#include "tests/robustness/attack_api.h"

namespace pjrt_metal::attack {

void Round::NewClient() {
  auto args = New<PJRT_Client_Create_Args>();
  if (!Good(api_.PJRT_Client_Create, args)) std::abort();
  Add(kClient, args.client);
  auto devices = New<PJRT_Client_Devices_Args>();
  devices.client = args.client;
  if (!Good(api_.PJRT_Client_Devices, devices)) std::abort();
  for (size_t i = 0; i < devices.num_devices; ++i) {
    Add(kDevice, devices.devices[i]);
    auto memories = New<PJRT_Device_AddressableMemories_Args>();
    memories.device = devices.devices[i];
    if (!Good(api_.PJRT_Device_AddressableMemories, memories)) std::abort();
    for (size_t j = 0; j < memories.num_memories; ++j) Add(kMemory, memories.memories[j]);
    auto description = New<PJRT_Device_GetDescription_Args>();
    description.device = devices.devices[i];
    if (!Good(api_.PJRT_Device_GetDescription, description)) std::abort();
    Add(kDescription, description.device_description);
  }
  auto topology = New<PJRT_Client_TopologyDescription_Args>();
  topology.client = args.client;
  if (!Good(api_.PJRT_Client_TopologyDescription, topology)) std::abort();
  Add(kTopology, topology.topology);
  of_client_ = topology.topology;
}

void Round::AskClient() {
  PJRT_Client* const client = Any<PJRT_Client>(kClient);
  const auto with = [&](auto args, auto function) {
    args.client = client;
    Call(function, args);
  };
  switch (random_.Below(8)) {
    case 0:
      with(New<PJRT_Client_PlatformName_Args>(), api_.PJRT_Client_PlatformName);
      with(New<PJRT_Client_PlatformVersion_Args>(), api_.PJRT_Client_PlatformVersion);
      break;
    case 1:
      with(New<PJRT_Client_AddressableDevices_Args>(), api_.PJRT_Client_AddressableDevices);
      with(New<PJRT_Client_AddressableMemories_Args>(), api_.PJRT_Client_AddressableMemories);
      break;
    case 2: {
      auto args = New<PJRT_Client_LookupDevice_Args>();
      args.client = client;
      args.id = static_cast<int>(random_.OneIn(2) ? random_.Odd(32) : random_.Below(3));
      Call(api_.PJRT_Client_LookupDevice, args);
      break;
    }
    case 3: {
      auto args = New<PJRT_Client_DefaultDeviceAssignment_Args>();
      int room[4];
      args.client = client;
      args.num_replicas = static_cast<int>(random_.OneIn(3) ? random_.Odd(32) : random_.Below(3));
      args.num_partitions = static_cast<int>(random_.OneIn(3) ? random_.Odd(32) : random_.Below(3));
      args.default_assignment_size = random_.Below(5);
      args.default_assignment = random_.OneIn(9) ? nullptr : room;
      Call(api_.PJRT_Client_DefaultDeviceAssignment, args);
      break;
    }
    case 4: {
      auto map = New<PJRT_Client_DmaMap_Args>();
      map.client = client;
      map.data = host_memory.data() + random_.Below(3);
      map.size = random_.Odd();
      Call(api_.PJRT_Client_DmaMap, map);
      auto unmap = New<PJRT_Client_DmaUnmap_Args>();
      unmap.client = client;
      unmap.data = host_memory.data() + random_.Below(3);
      Call(api_.PJRT_Client_DmaUnmap, unmap);
      break;
    }
    case 5: {
      auto args = New<PJRT_Client_Create_Args>();
      auto option = New<PJRT_NamedValue>();
      const char* names[] = {"memory_fraction", "trusted_programs", "compiler_version", "what"};
      option.name = names[random_.Below(4)];
      option.name_size = std::strlen(option.name);
      option.type = static_cast<PJRT_NamedValue_Type>(random_.Below(7));
      const int64_t numbers[] = {1, -1, INT64_MAX};
      if (option.type == PJRT_NamedValue_kString) {
        option.string_value = "1e999";
        option.value_size = random_.Below(6);
      } else if (option.type == PJRT_NamedValue_kInt64List) {
        option.int64_array_value = numbers;
        option.value_size = random_.Below(4);
      } else {
        option.int64_value = static_cast<int64_t>(random_.Odd());
      }
      if (option.type == PJRT_NamedValue_kBool) option.bool_value = random_.OneIn(2);
      args.create_options = random_.OneIn(9) ? nullptr : &option;
      args.num_options = 1;
      if (Call(api_.PJRT_Client_Create, args)) Add(kClient, args.client);
      break;
    }
    case 6:
      with(New<PJRT_Client_UpdateGlobalProcessInfo_Args>(), api_.PJRT_Client_UpdateGlobalProcessInfo);
      break;
    default:
      with(New<PJRT_Client_Devices_Args>(), api_.PJRT_Client_Devices);
  }
}

void Round::AskDevice() {
  PJRT_Device* const device = Any<PJRT_Device>(kDevice);
  PJRT_Memory* const memory = Any<PJRT_Memory>(kMemory);
  PJRT_DeviceDescription* const description = Any<PJRT_DeviceDescription>(kDescription);
  const auto of_device = [&](auto args, auto function) {
    args.device = device;
    Call(function, args);
  };
  const auto of_memory = [&](auto args, auto function) {
    args.memory = memory;
    Call(function, args);
  };
  const auto of_description = [&](auto args, auto function) {
    args.device_description = description;
    Call(function, args);
  };
  switch (random_.Below(4)) {
    case 0:
      of_device(New<PJRT_Device_MemoryStats_Args>(), api_.PJRT_Device_MemoryStats);
      of_device(New<PJRT_Device_DefaultMemory_Args>(), api_.PJRT_Device_DefaultMemory);
      of_device(New<PJRT_Device_LocalHardwareId_Args>(), api_.PJRT_Device_LocalHardwareId);
      of_device(New<PJRT_Device_ClearMemoryStats_Args>(), api_.PJRT_Device_ClearMemoryStats);
      break;
    case 1:
      of_device(New<PJRT_Device_GetAttributes_Args>(), api_.PJRT_Device_GetAttributes);
      of_device(New<PJRT_Device_PoisonExecution_Args>(), api_.PJRT_Device_PoisonExecution);
      of_device(New<PJRT_Device_AddressableMemories_Args>(), api_.PJRT_Device_AddressableMemories);
      break;
    case 2:
      of_memory(New<PJRT_Memory_Id_Args>(), api_.PJRT_Memory_Id);
      of_memory(New<PJRT_Memory_Kind_Args>(), api_.PJRT_Memory_Kind);
      of_memory(New<PJRT_Memory_Kind_Id_Args>(), api_.PJRT_Memory_Kind_Id);
      of_memory(New<PJRT_Memory_ToString_Args>(), api_.PJRT_Memory_ToString);
      of_memory(New<PJRT_Memory_AddressableByDevices_Args>(), api_.PJRT_Memory_AddressableByDevices);
      break;
    default:
      of_description(New<PJRT_DeviceDescription_Id_Args>(), api_.PJRT_DeviceDescription_Id);
      of_description(New<PJRT_DeviceDescription_Kind_Args>(), api_.PJRT_DeviceDescription_Kind);
      of_description(New<PJRT_DeviceDescription_Attributes_Args>(), api_.PJRT_DeviceDescription_Attributes);
      of_description(New<PJRT_DeviceDescription_ToString_Args>(), api_.PJRT_DeviceDescription_ToString);
  }
}

void Round::AskTopology() {
  PJRT_TopologyDescription* const topology = Any<PJRT_TopologyDescription>(kTopology);
  switch (random_.Below(5)) {
    case 0: {
      auto args = New<PJRT_TopologyDescription_Create_Args>();
      args.topology_name = "software";
      args.topology_name_size = random_.Below(9);
      if (Call(api_.PJRT_TopologyDescription_Create, args)) Add(kTopology, args.topology);
      break;
    }
    case 1: {
      auto args = New<PJRT_TopologyDescription_Serialize_Args>();
      args.topology = topology;
      if (!Call(api_.PJRT_TopologyDescription_Serialize, args)) break;
      std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
      for (size_t i = random_.Below(3); i > 0 && !bytes.empty(); --i) {
        bytes[random_.Below(bytes.size())] = static_cast<char>(random_.Odd(8));
      }
      args.serialized_topology_deleter(args.serialized_topology);
      if (random_.OneIn(5)) args.serialized_topology_deleter(args.serialized_topology);
      auto back = New<PJRT_TopologyDescription_Deserialize_Args>();
      back.serialized_topology = bytes.data();
      back.serialized_topology_size = bytes.size();
      if (Call(api_.PJRT_TopologyDescription_Deserialize, back)) Add(kTopology, back.topology);
      break;
    }
    case 2: {
      auto args = New<PJRT_TopologyDescription_GetDeviceDescriptions_Args>();
      args.topology = topology;
      Call(api_.PJRT_TopologyDescription_GetDeviceDescriptions, args);
      break;
    }
    case 3: {
      auto args = New<PJRT_TopologyDescription_Fingerprint_Args>();
      args.topology = topology;
      Call(api_.PJRT_TopologyDescription_Fingerprint, args);
      break;
    }
    default: {
      const std::vector<int64_t> dims = Dims();
      auto args = New<PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args>();
      args.topology = topology;
      args.memory_space_kind_id = static_cast<int>(random_.Below(4)) - (random_.OneIn(9) ? 9 : 0);
      args.element_type = Type();
      args.dims = dims.data();
      args.num_dims = dims.size();
      args.layout = Layout(dims.size());
      if (Call(api_.PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace, args)) {
        args.serialized_shape_deleter(args.serialized_shape);
      }
    }
  }
}

void Round::AskLayouts() {
  PJRT_Layouts_MemoryLayout* const layout = Any<PJRT_Layouts_MemoryLayout>(kLayout);
  switch (random_.Below(4)) {
    case 0: {
      auto args = New<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>();
      args.buffer = Any<PJRT_Buffer>(kBuffer);
      if (Call(layouts_.PJRT_Layouts_PJRT_Buffer_MemoryLayout, args)) Add(kLayout, args.layout);
      break;
    }
    case 1: {
      const std::vector<int64_t> dims = Dims();
      auto args = New<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args>();
      args.client = Any<PJRT_Client>(kClient);
      args.type = Type();
      args.dims = dims.data();
      args.num_dims = dims.size();
      if (Call(layouts_.PJRT_Layouts_PJRT_Client_GetDefaultLayout, args)) Add(kLayout, args.layout);
      break;
    }
    case 2: {
      auto args = New<PJRT_Layouts_MemoryLayout_Serialize_Args>();
      args.layout = layout;
      if (Call(layouts_.PJRT_Layouts_MemoryLayout_Serialize, args)) {
        for (size_t calls = 1 + random_.Below(2); calls > 0; --calls)
          args.serialized_layout_deleter(args.serialized_layout);
      }
      break;
    }
    default: {
      auto args = New<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args>();
      args.executable = Any<PJRT_Executable>(kExecutable);
      Call(layouts_.PJRT_Layouts_PJRT_Executable_GetOutputLayouts, args);
    }
  }
}

bool Round::IsReady(PJRT_Event* event) {
  auto args = New<PJRT_Event_IsReady_Args>();
  args.event = event;
  return Good(api_.PJRT_Event_IsReady, args) && args.is_ready;
}

void Round::AskEvent() {
  PJRT_Event* const event = Any<PJRT_Event>(kEvent);
  const auto with = [&](auto args, auto function) {
    args.event = event;
    Call(function, args);
  };
  switch (random_.Below(6)) {
    case 0: {
      auto args = New<PJRT_Event_Create_Args>();
      if (Call(api_.PJRT_Event_Create, args)) Add(kEvent, args.event);
      break;
    }
    case 1: {
      auto args = New<PJRT_Event_Set_Args>();
      args.event = event;
      args.error_code = static_cast<PJRT_Error_Code>(random_.OneIn(2) ? 0 : random_.Odd(6));
      args.error_message = "no";
      args.error_message_size = random_.Below(3);
      Call(api_.PJRT_Event_Set, args);
      break;
    }
    case 2:
      if (event == nullptr || !IsLive(kEvent, event) || IsReady(event))
        with(New<PJRT_Event_Await_Args>(), api_.PJRT_Event_Await);
      break;
    case 3:
      with(New<PJRT_Event_Error_Args>(), api_.PJRT_Event_Error);
      break;
    case 4: {
      auto args = New<PJRT_Event_OnReady_Args>();
      args.event = event;
      args.callback = random_.OneIn(10) ? nullptr : +[](PJRT_Error* error, void*) { Take(*GetPjrtApi(), error); };
      Call(api_.PJRT_Event_OnReady, args);
      break;
    }
    default:
      with(New<PJRT_Event_IsReady_Args>(), api_.PJRT_Event_IsReady);
  }
}

}  // namespace pjrt_metal::attack
