// PJRT_LoadedExecutable: a Program on the devices that it was assigned to, and its execution.
#include <algorithm>
#include <utility>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/objects.h"
#include "csrc/pjrt/proto.h"

struct PJRT_DeviceAssignmentSerialized {
  PJRT_METAL_HANDLE(PJRT_DeviceAssignmentSerialized)
  std::string bytes;
};

struct PJRT_LoadedExecutable {
  PJRT_METAL_HANDLE(PJRT_LoadedExecutable)
  std::shared_ptr<PJRT_Client> client;
  std::shared_ptr<const pjrt_metal::CompiledProgram> compiled;
  uint32_t num_replicas, num_partitions;
  // Row-major over (replica, partition), as is `logical_ids`.
  std::vector<PJRT_Device*> devices;
  std::vector<PJRT_LogicalDeviceIds> logical_ids;
  std::mutex mutex;
  bool deleted = false;
  // One for each of `devices`, and others that Execute was asked to run on.
  std::vector<std::pair<PJRT_Device*, std::shared_ptr<pjrt_metal::LoadedProgram>>> loaded;
};

namespace pjrt_metal {
namespace {

// Which devices a CompileOptionsProto asks for.
struct Assignment {
  uint32_t num_replicas = 1, num_partitions = 1;
  std::vector<int64_t> device_ids;  // row-major over (replica, partition); empty: not said
};

// Field numbers of XLA's CompileOptionsProto, ExecutableBuildOptionsProto and
// DeviceAssignmentProto.
enum OptionsField : uint32_t { kBuildOptions = 3 };
enum BuildField : uint32_t { kOrdinal = 1, kReplicas = 4, kPartitions = 5, kAssignment = 9 };
enum AssignmentField : uint32_t { kReplicaCount = 1, kComputationCount = 2, kComputation = 3 };
constexpr uint32_t kReplicaDeviceIds = 1;
constexpr uint64_t kMaxLogicalDevices = 4096;  // guards against a corrupt count

uint32_t ToCount(uint64_t value) {
  if (value > kMaxLogicalDevices) {
    throw InvalidArgument("compile options ask for " + std::to_string(value) + " devices");
  }
  return std::max<uint32_t>(1, static_cast<uint32_t>(value));
}

void ReadDeviceAssignment(std::string_view bytes, Assignment& assignment) {
  std::vector<std::vector<int64_t>> computations;  // device ids by replica
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == kReplicaCount) assignment.num_replicas = ToCount(reader.varint());
    if (reader.field() == kComputationCount) assignment.num_partitions = ToCount(reader.varint());
    if (reader.field() != kComputation) continue;
    auto& ids = computations.emplace_back();
    ProtoReader computation(reader.bytes());
    while (computation.Next()) {
      if (computation.field() != kReplicaDeviceIds) continue;
      computation.ForEachInteger([&](uint64_t id) { ids.push_back(static_cast<int64_t>(id)); });
    }
  }
  if (computations.size() != assignment.num_partitions) {
    throw InvalidArgument("compile options: malformed device assignment");
  }
  for (uint32_t replica = 0; replica < assignment.num_replicas; ++replica) {
    for (const auto& ids : computations) {
      if (ids.size() != assignment.num_replicas) {
        throw InvalidArgument("compile options: malformed device assignment");
      }
      assignment.device_ids.push_back(ids[replica]);
    }
  }
}

Assignment ReadOptions(std::string_view compile_options) {
  Assignment assignment;
  int64_t ordinal = -1;
  ProtoReader options(compile_options);
  while (options.Next()) {
    if (options.field() != kBuildOptions) continue;
    ProtoReader build(options.bytes());
    while (build.Next()) {
      switch (build.field()) {
        case kOrdinal:
          ordinal = static_cast<int64_t>(build.varint());
          break;
        case kReplicas:
          assignment.num_replicas = ToCount(build.varint());
          break;
        case kPartitions:
          assignment.num_partitions = ToCount(build.varint());
          break;
        case kAssignment:
          ReadDeviceAssignment(build.bytes(), assignment);
          break;
      }
    }
  }
  if (assignment.device_ids.empty() && ordinal >= 0) assignment.device_ids.push_back(ordinal);
  return assignment;
}

PJRT_LoadedExecutable* Load(PJRT_Client& client, std::shared_ptr<const CompiledProgram> compiled,
                            std::string_view compile_options) {
  const Assignment assignment = ReadOptions(compile_options);
  auto executable = std::make_unique<PJRT_LoadedExecutable>();
  executable->client = client.shared_from_this();
  executable->compiled = std::move(compiled);
  executable->num_replicas = assignment.num_replicas;
  executable->num_partitions = assignment.num_partitions;
  const size_t count = size_t{assignment.num_replicas} * assignment.num_partitions;
  if (!assignment.device_ids.empty() && assignment.device_ids.size() != count) {
    throw InvalidArgument("compile options assign " + std::to_string(assignment.device_ids.size()) + " devices to " +
                          std::to_string(count) + " logical ones");
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t id = assignment.device_ids.empty() ? static_cast<int64_t>(i) : assignment.device_ids[i];
    PJRT_Device* const device = id >= 0 && id <= INT32_MAX ? client.device(static_cast<int>(id)) : nullptr;
    if (device == nullptr) {
      throw InvalidArgument("compile options ask for device " + std::to_string(id) + "; this client has " +
                            std::to_string(client.devices.size()));
    }
    executable->devices.push_back(device);
    executable->logical_ids.push_back(
        {static_cast<int>(i / assignment.num_partitions), static_cast<int>(i % assignment.num_partitions)});
    executable->loaded.emplace_back(device,
                                    std::make_shared<LoadedProgram>(device->device, executable->compiled->program));
  }
  return executable.release();
}

PJRT_LoadedExecutable& Checked(PJRT_LoadedExecutable* executable) { return Required(executable, "executable"); }

void Compile(PJRT_Client_Compile_Args& args) {
  PJRT_Client& client = Required(args.client, "client");
  const std::string options(Text(args.compile_options, args.compile_options_size, "compile_options"));
  ReadOptions(options);  // before the work of compiling
  std::string bytes = CompileBytes(args.program, options, client.topology->target, client.runtime.trusts_programs());
  args.executable = Load(client, std::make_shared<const CompiledProgram>(std::move(bytes), options), options);
}

void LoadExecutable(PJRT_Client_Load_Args& args) {
  PJRT_Client& client = Required(args.client, "client");
  const auto& compiled = Required(args.executable, "executable").compiled;
  const std::string_view options = Text(args.compile_options, args.compile_options_size, "compile_options");
  args.loaded_executable = Load(client, compiled, options.empty() ? compiled->compile_options : options);
}

void DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args& args) {
  PJRT_Client& client = Required(args.client, "client");
  std::string bytes(Text(args.serialized_executable, args.serialized_executable_size, "serialized_executable"));
  std::string options;
  if (PJRT_METAL_HAS(args, overridden_serialized_compile_options_size)) {
    options = Text(args.overridden_serialized_compile_options, args.overridden_serialized_compile_options_size,
                   "overridden_serialized_compile_options");
  }
  auto compiled = std::make_shared<const CompiledProgram>(std::move(bytes), options);
  args.loaded_executable = Load(client, std::move(compiled), options);
}

void Destroy(PJRT_LoadedExecutable_Destroy_Args& args) { DestroyHandle(args.executable, "executable"); }

void GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args& args) {
  args.executable = new PJRT_Executable{Required(args.loaded_executable, "loaded_executable").compiled};
}

void AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args& args) {
  const auto& devices = Checked(args.executable).devices;
  args.addressable_devices = devices.data();
  args.num_addressable_devices = devices.size();
}

void LogicalIds(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args& args) {
  auto& ids = Checked(args.executable).logical_ids;
  args.addressable_device_logical_ids = ids.data();
  args.num_addressable_device_logical_ids = ids.size();
}

void GetDeviceAssignment(PJRT_LoadedExecutable_GetDeviceAssignment_Args& args) {
  const PJRT_LoadedExecutable& executable = Checked(args.executable);
  ProtoWriter writer;
  writer.Varint(kReplicaCount, executable.num_replicas);
  writer.Varint(kComputationCount, executable.num_partitions);
  for (uint32_t partition = 0; partition < executable.num_partitions; ++partition) {
    std::vector<int64_t> ids;
    for (size_t i = partition; i < executable.devices.size(); i += executable.num_partitions) {
      ids.push_back(executable.devices[i]->description->id);
    }
    ProtoWriter computation;
    computation.Packed(kReplicaDeviceIds, ids);
    writer.Bytes(kComputation, computation.bytes());
  }
  auto* serialized = new PJRT_DeviceAssignmentSerialized{writer.bytes()};
  args.serialized_bytes = serialized->bytes.data();
  args.serialized_bytes_size = serialized->bytes.size();
  args.serialized_device_assignment = serialized;
  args.serialized_device_assignment_deleter = DeleteHandle<PJRT_DeviceAssignmentSerialized>;
}

void Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args& args) {
  const std::string& fingerprint = Checked(args.executable).compiled->program->fingerprint;
  args.executable_fingerprint = fingerprint.data();
  args.executable_fingerprint_size = fingerprint.size();
}

void Delete(PJRT_LoadedExecutable_Delete_Args& args) {
  PJRT_LoadedExecutable& executable = Checked(args.executable);
  decltype(executable.loaded) last;
  const std::lock_guard lock(executable.mutex);
  executable.deleted = true;
  executable.loaded.swap(last);
}

void IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args& args) {
  PJRT_LoadedExecutable& executable = Checked(args.executable);
  const std::lock_guard lock(executable.mutex);
  args.is_deleted = executable.deleted;
}

// The Program on a device; loads it if the client asks for one that it was not assigned to.
std::shared_ptr<LoadedProgram> On(PJRT_LoadedExecutable& executable, PJRT_Device* device) {
  const std::lock_guard lock(executable.mutex);
  if (executable.deleted) throw FailedPrecondition("the executable was deleted");
  for (const auto& [other, program] : executable.loaded) {
    if (other == device) return program;
  }
  if (device->client != executable.client.get()) {
    throw InvalidArgument("execute_device is of another client");
  }
  executable.loaded.emplace_back(device, std::make_shared<LoadedProgram>(device->device, executable.compiled->program));
  return executable.loaded.back().second;
}

// Throws Unimplemented for what an execution cannot do, InvalidArgument for malformed options.
std::span<const int64_t> CheckOptions(const PJRT_ExecuteOptions* options) {
  if (options == nullptr) return {};
  CheckStructSize(options->struct_size, PJRT_METAL_THROUGH(PJRT_ExecuteOptions, num_non_donatable_input_indices),
                  typeid(*options));
  if (options->num_send_ops > 0 || options->num_recv_ops > 0) {
    throw Unimplemented(
        "send and receive callbacks are not supported: use jax.pure_callback or "
        "jax.experimental.io_callback, which are host calls here");
  }
  if (PJRT_METAL_HAS(*options, num_hlo_output_callbacks) && options->num_hlo_output_callbacks > 0) {
    throw Unimplemented("HLO output callbacks are not supported");
  }
  return Required(options->non_donatable_input_indices, options->num_non_donatable_input_indices,
                  "non_donatable_input_indices");
}

// A copy: the client may destroy the context when the call has returned.
std::shared_ptr<const FfiUserData> UserData(const PJRT_ExecuteOptions* options) {
  if (options == nullptr || !PJRT_METAL_HAS(*options, context) || options->context == nullptr) return nullptr;
  const std::lock_guard lock(options->context->mutex);
  return std::make_shared<const FfiUserData>(options->context->user_data);
}

struct Launched {
  std::vector<std::unique_ptr<PJRT_Buffer>> outputs;
  EventRef done;
};

Launched ExecuteOn(PJRT_LoadedExecutable& executable, PJRT_Device* device, std::span<PJRT_Buffer* const> arguments,
                   std::span<const int64_t> non_donatable, const std::shared_ptr<const FfiUserData>& user_data) {
  const std::shared_ptr<LoadedProgram> program = On(executable, device);
  std::vector<Buffer*> buffers;
  buffers.reserve(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == nullptr) {
      throw InvalidArgument("argument " + std::to_string(i) + " is null");
    }
    buffers.push_back(Required(arguments[i], "an argument").buffer.get());
  }
  LoadedProgram::Result result = program->Execute(buffers, non_donatable, user_data);
  Launched launched;
  launched.outputs.reserve(result.outputs.size());
  for (auto& output : result.outputs) {
    launched.outputs.emplace_back(NewBuffer(*executable.client, std::move(output)));
  }
  launched.done = std::move(result.done);
  return launched;
}

void Execute(PJRT_LoadedExecutable_Execute_Args& args) {
  PJRT_LoadedExecutable& executable = Checked(args.executable);
  const auto non_donatable = CheckOptions(args.options);
  const Program& program = *executable.compiled->program;
  if (args.num_args != program.parameters.size()) {
    throw InvalidArgument(program.name + " takes " + std::to_string(program.parameters.size()) + " arguments, not " +
                          std::to_string(args.num_args));
  }
  for (const int64_t index : non_donatable) {
    if (index < 0 || index >= static_cast<int64_t>(args.num_args)) {
      throw InvalidArgument("non_donatable_input_indices has " + std::to_string(index) +
                            ", which is not an argument's index");
    }
  }
  const bool chosen = args.execute_device != nullptr;
  const size_t num_devices = chosen ? 1 : executable.devices.size();
  if (args.num_devices != num_devices) {
    throw InvalidArgument(program.name + " runs on " + std::to_string(num_devices) + " devices, not " +
                          std::to_string(args.num_devices));
  }
  Required(args.argument_lists, "argument_lists");
  Required(args.output_lists, "output_lists");
  for (size_t i = 0; i < num_devices; ++i) {
    Required(args.argument_lists[i], args.num_args, "argument_lists' list");
    Required(args.output_lists[i], program.outputs.size(), "output_lists' list");
  }
  const std::shared_ptr<const FfiUserData> user_data = UserData(args.options);
  std::vector<Launched> launched;  // given out only when every device has started
  for (size_t i = 0; i < num_devices; ++i) {
    launched.push_back(ExecuteOn(executable,
                                 chosen ? &Required(args.execute_device, "execute_device") : executable.devices[i],
                                 {args.argument_lists[i], args.num_args}, non_donatable, user_data));
  }
  for (size_t i = 0; i < num_devices; ++i) {
    for (size_t j = 0; j < launched[i].outputs.size(); ++j) {
      args.output_lists[i][j] = launched[i].outputs[j].release();
    }
    if (args.device_complete_events != nullptr) {
      args.device_complete_events[i] = new PJRT_Event{std::move(launched[i].done)};
    }
  }
}

void CreateContext(PJRT_ExecuteContext_Create_Args& args) { args.context = new PJRT_ExecuteContext; }

void DestroyContext(PJRT_ExecuteContext_Destroy_Args& args) { DestroyHandle(args.context, "context"); }

}  // namespace

void FillLoadedExecutableFunctions(PJRT_Api& api) {
  api.PJRT_Client_Compile = Entry<Compile>;
  api.PJRT_Client_Load = Entry<LoadExecutable>;
  api.PJRT_Executable_DeserializeAndLoad =
      Entry<DeserializeAndLoad, PJRT_METAL_THROUGH(PJRT_Executable_DeserializeAndLoad_Args, loaded_executable)>;
  api.PJRT_LoadedExecutable_Destroy = Entry<Destroy>;
  api.PJRT_LoadedExecutable_GetExecutable = Entry<GetExecutable>;
  api.PJRT_LoadedExecutable_AddressableDevices = Entry<AddressableDevices>;
  api.PJRT_LoadedExecutable_AddressableDeviceLogicalIds = Entry<LogicalIds>;
  api.PJRT_LoadedExecutable_GetDeviceAssignment = Entry<GetDeviceAssignment>;
  api.PJRT_LoadedExecutable_Fingerprint = Entry<Fingerprint>;
  api.PJRT_LoadedExecutable_Delete = Entry<Delete>;
  api.PJRT_LoadedExecutable_IsDeleted = Entry<IsDeleted>;
  api.PJRT_LoadedExecutable_Execute = Entry<Execute>;
  api.PJRT_ExecuteContext_Create = Entry<CreateContext>;
  api.PJRT_ExecuteContext_Destroy = Entry<DestroyContext>;
}

}  // namespace pjrt_metal
