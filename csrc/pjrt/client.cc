// PJRT_Client: this process's devices and memories, and the lookups over them.
#include "csrc/runtime/client.h"

#include <cstring>
#include <string>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/objects.h"

using pjrt_metal::InvalidArgument;
using pjrt_metal::LogicalDevice;
using pjrt_metal::MemoryObject;
using pjrt_metal::MemorySpace;

PJRT_Client::PJRT_Client(const std::map<std::string, std::string>& options) : runtime(options) {
  const auto logical = runtime.devices();
  const auto& info = logical.front()->device()->info();
  topology =
      std::make_unique<PJRT_TopologyDescription>(info.target, info.kind, runtime.platform_version(), logical.size());
  topology->of_client = true;
  for (size_t i = 0; i < logical.size(); ++i) {
    auto device = std::make_unique<PJRT_Device>();
    device->description = topology->handles[i];
    if (const std::string& details = logical[i]->device()->info().details; !details.empty()) {
      device->description->attributes.Add("hardware", details);
    }
    device->client = this;
    device->device = logical[i].get();
    for (const auto& space : logical[i]->memories()) {
      auto memory = std::make_unique<MemoryObject>();
      memory->vtable = nullptr;
      memory->space = space.get();
      memory->device = device.get();
      memory->text = "MetalMemory(id=" + std::to_string(space->id()) + ", kind=" + space->kind_name() +
                     ", device=" + std::to_string(i) + ")";
      device->memory_handles.push_back(memory.get());
      memory_handles.push_back(memory.get());
      device->memories.push_back(std::move(memory));
    }
    device_handles.push_back(device.get());
    devices.push_back(std::move(device));
  }
}

PJRT_Device* PJRT_Client::device(int id) const {
  for (const auto& device : devices) {
    if (device->description->id == id) return device.get();
  }
  return nullptr;
}

MemoryObject* PJRT_Client::memory(const MemorySpace* space) const {
  for (const auto& device : devices) {
    if (device->device != space->device()) continue;
    for (const auto& memory : device->memories) {
      if (memory->space == space) return memory.get();
    }
  }
  throw pjrt_metal::Internal("a buffer's memory space is not of its client");
}

namespace pjrt_metal {

PJRT_NamedValue& Attributes::New(const char* name, PJRT_NamedValue_Type type, size_t size) {
  PJRT_NamedValue& value = values_.emplace_back();
  value.struct_size = StructSize<PJRT_NamedValue>();
  value.extension_start = nullptr;
  value.name = name;
  value.name_size = std::strlen(name);
  value.type = type;
  value.value_size = size;
  return value;
}

void Attributes::Add(const char* name, std::string_view value) {
  const std::string& text = texts_.emplace_back(value);
  New(name, PJRT_NamedValue_kString, text.size()).string_value = text.data();
}

void Attributes::Add(const char* name, int64_t value) { New(name, PJRT_NamedValue_kInt64, 1).int64_value = value; }

void Attributes::Add(const char* name, float value) { New(name, PJRT_NamedValue_kFloat, 1).float_value = value; }

void Attributes::Add(const char* name, std::vector<int64_t> value) {
  const std::vector<int64_t>& list = lists_.emplace_back(std::move(value));
  New(name, PJRT_NamedValue_kInt64List, list.size()).int64_array_value = list.data();
}

std::map<std::string, std::string> OptionsFromClient(const PJRT_NamedValue* options, size_t count) {
  std::map<std::string, std::string> result;
  for (const PJRT_NamedValue& option : Required(options, count, "options")) {
    CheckStructSize(option.struct_size, StructSize<PJRT_NamedValue>(), typeid(option));
    const std::string name(Text(option.name, option.name_size, "option's name"));
    std::string value;
    switch (option.type) {
      case PJRT_NamedValue_kString:
        value = Text(option.string_value, option.value_size, "option's string_value");
        break;
      case PJRT_NamedValue_kInt64:
        value = std::to_string(option.int64_value);
        break;
      case PJRT_NamedValue_kInt64List:
        for (const int64_t item : Required(option.int64_array_value, option.value_size, "option's int64_array_value")) {
          value += (value.empty() ? "" : ",") + std::to_string(item);
        }
        break;
      case PJRT_NamedValue_kFloat:
        value = std::to_string(option.float_value);
        break;
      case PJRT_NamedValue_kBool:
        value = option.bool_value ? "true" : "false";
        break;
      default:
        throw InvalidArgument("option '" + name + "' has the unknown type " + std::to_string(option.type));
    }
    result[name] = value;
  }
  return result;
}

namespace {

PJRT_Client& Checked(PJRT_Client* client) { return Required(client, "client"); }

void Create(PJRT_Client_Create_Args& args) {
  auto client = std::shared_ptr<PJRT_Client>(new PJRT_Client(OptionsFromClient(args.create_options, args.num_options)));
  client->self = client;
  args.client = client.get();
}

void Destroy(PJRT_Client_Destroy_Args& args) {
  if (args.client == nullptr || IsForked()) return;
  const std::shared_ptr<PJRT_Client> last = std::move(Required(args.client, "client").self);
}

void PlatformName(PJRT_Client_PlatformName_Args& args) {
  Checked(args.client);
  args.platform_name = kPlatformName.data();
  args.platform_name_size = kPlatformName.size();
}

void PlatformVersion(PJRT_Client_PlatformVersion_Args& args) {
  const std::string& version = Checked(args.client).topology->platform_version;
  args.platform_version = version.data();
  args.platform_version_size = version.size();
}

void ProcessIndex(PJRT_Client_ProcessIndex_Args& args) {
  Checked(args.client);
  args.process_index = 0;
}

void Topology(PJRT_Client_TopologyDescription_Args& args) { args.topology = Checked(args.client).topology.get(); }

void Devices(PJRT_Client_Devices_Args& args) {
  const auto& handles = Checked(args.client).device_handles;
  args.devices = handles.data();
  args.num_devices = handles.size();
}

void AddressableDevices(PJRT_Client_AddressableDevices_Args& args) {
  const auto& handles = Checked(args.client).device_handles;
  args.addressable_devices = handles.data();
  args.num_addressable_devices = handles.size();
}

void AddressableMemories(PJRT_Client_AddressableMemories_Args& args) {
  const auto& handles = Checked(args.client).memory_handles;
  args.addressable_memories = handles.data();
  args.num_addressable_memories = handles.size();
}

PJRT_Device* Lookup(PJRT_Client* client, int id) {
  PJRT_Device* const device = Checked(client).device(id);
  if (device == nullptr) {
    throw InvalidArgument("there is no device " + std::to_string(id) + "; this client has " +
                          std::to_string(client->devices.size()));
  }
  return device;
}

void LookupDevice(PJRT_Client_LookupDevice_Args& args) { args.device = Lookup(args.client, args.id); }

void LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args& args) {
  args.addressable_device = Lookup(args.client, args.local_hardware_id);
}

void UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args& args) {
  Checked(args.client);  // there is one process: nothing to note
  Required(args.process_infos, args.num_process_infos, "process_infos");
}

// Logical device i (partitions vary fastest) is device i.
void DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args& args) {
  const PJRT_Client& client = Checked(args.client);
  if (args.num_replicas < 1 || args.num_partitions < 1) {
    throw InvalidArgument("num_replicas and num_partitions must be at least 1");
  }
  const int64_t count = int64_t{args.num_replicas} * args.num_partitions;
  if (count > static_cast<int64_t>(client.devices.size())) {
    throw InvalidArgument(std::to_string(count) + " devices asked for, there are " +
                          std::to_string(client.devices.size()));
  }
  const auto assignment = Required(args.default_assignment, args.default_assignment_size, "default_assignment");
  if (assignment.size() < static_cast<size_t>(count)) {
    throw InvalidArgument("default_assignment has room for " + std::to_string(assignment.size()) + " devices, not " +
                          std::to_string(count));
  }
  for (int64_t i = 0; i < count; ++i) assignment[i] = client.devices[i]->description->id;
}

// Memory is unified: the device reaches what the host does. The ranges are kept to find unbalanced
// calls.
void DmaMap(PJRT_Client_DmaMap_Args& args) {
  PJRT_Client& client = Checked(args.client);
  Required(static_cast<char*>(args.data), "data");
  const std::lock_guard lock(client.mutex);
  if (!client.dma_mapped.emplace(args.data, args.size).second) {
    throw Error(Code::kAlreadyExists, "data is mapped already");
  }
}

void DmaUnmap(PJRT_Client_DmaUnmap_Args& args) {
  PJRT_Client& client = Checked(args.client);
  const std::lock_guard lock(client.mutex);
  if (client.dma_mapped.erase(args.data) == 0) {
    throw Error(Code::kNotFound, "data was not mapped");
  }
}

}  // namespace

void FillClientFunctions(PJRT_Api& api) {
  api.PJRT_Client_Create = Entry<Create, PJRT_METAL_THROUGH(PJRT_Client_Create_Args, client)>;
  api.PJRT_Client_Destroy = Entry<Destroy>;
  api.PJRT_Client_PlatformName = Entry<PlatformName>;
  api.PJRT_Client_PlatformVersion = Entry<PlatformVersion>;
  api.PJRT_Client_ProcessIndex = Entry<ProcessIndex>;
  api.PJRT_Client_TopologyDescription = Entry<Topology>;
  api.PJRT_Client_Devices = Entry<Devices>;
  api.PJRT_Client_AddressableDevices = Entry<AddressableDevices>;
  api.PJRT_Client_AddressableMemories = Entry<AddressableMemories>;
  api.PJRT_Client_LookupDevice = Entry<LookupDevice>;
  api.PJRT_Client_LookupAddressableDevice = Entry<LookupAddressableDevice>;
  api.PJRT_Client_UpdateGlobalProcessInfo = Entry<UpdateGlobalProcessInfo>;
  api.PJRT_Client_DefaultDeviceAssignment = Entry<DefaultDeviceAssignment>;
  api.PJRT_Client_DmaMap = Entry<DmaMap>;
  api.PJRT_Client_DmaUnmap = Entry<DmaUnmap>;
}

}  // namespace pjrt_metal
