// PJRT_TopologyDescription: what programs are compiled for, of this machine or of a named target.
#include <string>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/layout.h"
#include "csrc/pjrt/objects.h"
#include "csrc/pjrt/proto.h"

struct PJRT_SerializedTopology {
  PJRT_METAL_HANDLE(PJRT_SerializedTopology)
  std::string bytes;
};

PJRT_TopologyDescription::PJRT_TopologyDescription(std::string target, std::string kind, std::string platform_version,
                                                   size_t num_devices)
    : target(std::move(target)), kind(std::move(kind)), platform_version(std::move(platform_version)) {
  attributes.Add("target", this->target);
  for (size_t i = 0; i < num_devices; ++i) {
    descriptions.push_back(std::make_unique<PJRT_DeviceDescription>(static_cast<int>(i), this->kind, this->target));
    handles.push_back(descriptions.back().get());
  }
}

namespace pjrt_metal {
namespace {

constexpr size_t kMaxDevices = 4096;  // guards against a corrupt count
constexpr std::string_view kNamedVersion = "pjrt_metal, ahead of time";

// The serialized form is a protocol buffer message of these.
enum TopologyField : uint32_t { kTarget = 1, kKind = 2, kPlatformVersion = 3, kNumDevices = 4 };

std::string Serialize(const PJRT_TopologyDescription& topology) {
  ProtoWriter writer;
  writer.Bytes(kTarget, topology.target);
  writer.Bytes(kKind, topology.kind);
  writer.Bytes(kPlatformVersion, topology.platform_version);
  writer.Varint(kNumDevices, topology.descriptions.size());
  return writer.bytes();
}

PJRT_TopologyDescription* New(std::string target, std::string kind, std::string version, uint64_t num_devices) {
  if (target.empty()) throw InvalidArgument("a topology needs a target");
  if (num_devices < 1 || num_devices > kMaxDevices) {
    throw InvalidArgument("a topology has 1 to " + std::to_string(kMaxDevices) + " devices, not " +
                          std::to_string(num_devices));
  }
  return new PJRT_TopologyDescription(std::move(target), std::move(kind), std::move(version), num_devices);
}

const PJRT_TopologyDescription& Checked(const PJRT_TopologyDescription* topology) {
  return Required(topology, "topology");
}

uint64_t ToCount(const std::string& text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) {
    throw InvalidArgument("topology option 'num_devices' is '" + text + "', not a count");
  }
  return std::stoull(text);
}

// A target by name (the topology's name or the option "target", see mlir_lowering/targets.py), else
// this machine's.
void Create(PJRT_TopologyDescription_Create_Args& args) {
  std::string target(Text(args.topology_name, args.topology_name_size, "topology_name"));
  uint64_t num_devices = 0;
  for (const auto& [name, value] : OptionsFromClient(args.create_options, args.num_options)) {
    if (name == "target") {
      target = value;
    } else if (name == "num_devices") {
      num_devices = ToCount(value);
    } else {
      throw InvalidArgument("unknown topology option '" + name + "'; there are 'target' and 'num_devices'");
    }
  }
  if (!target.empty()) {
    args.topology = New(target, target, std::string(kNamedVersion), num_devices == 0 ? 1 : num_devices);
    return;
  }
  const Client client({});
  const DeviceInfo& info = client.devices().front()->device()->info();
  args.topology =
      New(info.target, info.kind, client.platform_version(), num_devices == 0 ? client.devices().size() : num_devices);
}

void Destroy(PJRT_TopologyDescription_Destroy_Args& args) {
  if (args.topology != nullptr && Checked(args.topology).of_client) {
    throw InvalidArgument("the topology is its client's, and goes with it");
  }
  DestroyHandle(args.topology, "topology");
}

void PlatformName(PJRT_TopologyDescription_PlatformName_Args& args) {
  Checked(args.topology);
  args.platform_name = kPlatformName.data();
  args.platform_name_size = kPlatformName.size();
}

void PlatformVersion(PJRT_TopologyDescription_PlatformVersion_Args& args) {
  const std::string& version = Checked(args.topology).platform_version;
  args.platform_version = version.data();
  args.platform_version_size = version.size();
}

void GetDeviceDescriptions(PJRT_TopologyDescription_GetDeviceDescriptions_Args& args) {
  const auto& handles = Checked(args.topology).handles;
  args.descriptions = handles.data();
  args.num_descriptions = handles.size();
}

void SerializeTopology(PJRT_TopologyDescription_Serialize_Args& args) {
  auto* serialized = new PJRT_SerializedTopology{Serialize(Checked(args.topology))};
  args.serialized_bytes = serialized->bytes.data();
  args.serialized_bytes_size = serialized->bytes.size();
  args.serialized_topology = serialized;
  args.serialized_topology_deleter = DeleteHandle<PJRT_SerializedTopology>;
}

void Deserialize(PJRT_TopologyDescription_Deserialize_Args& args) {
  std::string target, kind, version;
  uint64_t num_devices = 0;
  ProtoReader reader(Text(args.serialized_topology, args.serialized_topology_size, "serialized_topology"));
  while (reader.Next()) {
    switch (reader.field()) {
      case kTarget:
        target = reader.bytes();
        break;
      case kKind:
        kind = reader.bytes();
        break;
      case kPlatformVersion:
        version = reader.bytes();
        break;
      case kNumDevices:
        num_devices = reader.varint();
        break;
    }
  }
  args.topology = New(target, kind, version, num_devices);
}

void GetAttributes(PJRT_TopologyDescription_Attributes_Args& args) {
  const auto values = Checked(args.topology).attributes.values();
  args.attributes = values.data();
  args.num_attributes = values.size();
}

void Fingerprint(PJRT_TopologyDescription_Fingerprint_Args& args) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits: offset basis and prime
  for (const char c : Serialize(Checked(args.topology))) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  args.fingerprint = hash;
}

constexpr int kKindIds[] = {static_cast<int>(MemoryKind::kDevice), static_cast<int>(MemoryKind::kPinnedHost),
                            static_cast<int>(MemoryKind::kUnpinnedHost)};

void GetMemorySpaceKindIds(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args& args) {
  Checked(args.topology);
  args.memory_space_kind_ids = kKindIds;
  args.num_memory_space_kind_ids = std::size(kKindIds);
}

// Every dense layout is canonical: the shape comes back with the layout that was asked for, or the
// default.
void MakeCanonicalShape(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args& args) {
  Checked(args.topology);
  if (args.memory_space_kind_id < 0 || args.memory_space_kind_id >= static_cast<int>(std::size(kKindIds))) {
    throw InvalidArgument("memory_space_kind_id " + std::to_string(args.memory_space_kind_id) +
                          " is not one of 0, 1, 2");
  }
  const DType dtype = ToDType(args.element_type);
  const auto dims = Required(args.dims, args.num_dims, "dims");
  const std::string shape = ShapeProto(dtype, dims, DeviceLayout(args.layout, dtype, dims));
  char* const copy = new char[shape.size()];
  shape.copy(copy, shape.size());
  args.serialized_shape = copy;
  args.serialized_shape_size = shape.size();
  args.serialized_shape_deleter = [](const char* bytes) { delete[] bytes; };
}

}  // namespace

void FillTopologyFunctions(PJRT_Api& api) {
  api.PJRT_TopologyDescription_Create = Entry<Create>;
  api.PJRT_TopologyDescription_Destroy = Entry<Destroy>;
  api.PJRT_TopologyDescription_PlatformName = Entry<PlatformName>;
  api.PJRT_TopologyDescription_PlatformVersion = Entry<PlatformVersion>;
  api.PJRT_TopologyDescription_GetDeviceDescriptions = Entry<GetDeviceDescriptions>;
  api.PJRT_TopologyDescription_Serialize = Entry<SerializeTopology>;
  api.PJRT_TopologyDescription_Deserialize = Entry<Deserialize>;
  api.PJRT_TopologyDescription_Attributes = Entry<GetAttributes>;
  api.PJRT_TopologyDescription_Fingerprint = Entry<Fingerprint>;
  api.PJRT_TopologyDescription_GetMemorySpaceKindIds = Entry<GetMemorySpaceKindIds>;
  api.PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace = Entry<MakeCanonicalShape>;
}

}  // namespace pjrt_metal
