// PJRT_Buffer: what it tells of itself, its life, and its copies to other memories.
#include <cstring>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/layout.h"
#include "csrc/pjrt/objects.h"
#include "csrc/pjrt/private_extension.h"

namespace pjrt_metal {
namespace {

std::atomic<HostReadGuard> process_guard = HostReadGuard::kUnset;
thread_local HostReadGuard thread_guard = HostReadGuard::kUnset;

}  // namespace

void GuardHostReads(HostReadScope scope, HostReadGuard guard) noexcept {
  if (scope == HostReadScope::kThread) {
    thread_guard = guard;
  } else {
    process_guard = guard;
  }
}

PJRT_Buffer* NewBuffer(PJRT_Client& client, std::unique_ptr<Buffer> buffer) {
  EventRef defined = buffer->storage()->defined;
  MemoryObject* const memory = client.memory(buffer->memory());
  return new PJRT_Buffer{client.shared_from_this(), memory, std::move(buffer), std::move(defined)};
}

namespace {

PJRT_Buffer& Checked(PJRT_Buffer* buffer) { return Required(buffer, "buffer"); }

void Destroy(PJRT_Buffer_Destroy_Args& args) { DestroyHandle(args.buffer, "buffer"); }

void ElementType(PJRT_Buffer_ElementType_Args& args) {
  args.type = static_cast<PJRT_Buffer_Type>(Checked(args.buffer).buffer->dtype());
}

void Dimensions(PJRT_Buffer_Dimensions_Args& args) {
  const auto dims = Checked(args.buffer).buffer->dims();
  args.dims = dims.data();
  args.num_dims = dims.size();
}

void UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args& args) {
  const auto dims = Checked(args.buffer).buffer->dims();
  args.unpadded_dims = dims.data();
  args.num_dims = dims.size();
}

void DynamicDimensionIndices(PJRT_Buffer_DynamicDimensionIndices_Args& args) {
  Checked(args.buffer);  // shapes are static
  args.dynamic_dim_indices = nullptr;
  args.num_dynamic_dims = 0;
}

void GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args& args) {
  const auto order = Checked(args.buffer).buffer->minor_to_major();
  args.layout = {};
  args.layout.struct_size = StructSize<PJRT_Buffer_MemoryLayout>();
  args.layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args.layout.tiled.struct_size = StructSize<PJRT_Buffer_MemoryLayout_Tiled>();
  args.layout.tiled.minor_to_major = order.data();
  args.layout.tiled.minor_to_major_size = order.size();
}

void OnDeviceSize(PJRT_Buffer_OnDeviceSizeInBytes_Args& args) {
  args.on_device_size_in_bytes = Checked(args.buffer).buffer->bytes();
}

void GetDevice(PJRT_Buffer_Device_Args& args) { args.device = Checked(args.buffer).memory->device; }

void GetMemory(PJRT_Buffer_Memory_Args& args) { args.memory = Checked(args.buffer).memory; }

void Delete(PJRT_Buffer_Delete_Args& args) { Checked(args.buffer).buffer->Delete(); }

// A client that waits for a buffer may do so on an event that it asked for before; this it asks first, each time. So it
// learns here that it would wait for itself (the callback's error then says so: python_callback.cc).
void IsDeleted(PJRT_Buffer_IsDeleted_Args& args) {
  const PJRT_Buffer& buffer = Checked(args.buffer);
  args.is_deleted = buffer.buffer->is_deleted() || buffer.defined->WaitsForItself();
}

// Memory is unified: the host reads it where it is. But JAX asks its transfer guard only about arrays that are not on
// the CPU. So while the guard wants to be asked, they are not: JAX asks it and copies what it lets through. What was
// on the host before needs no transfer.
void IsOnCpu(PJRT_Buffer_IsOnCpu_Args& args) {
  PJRT_Buffer& buffer = Checked(args.buffer);
  const HostReadGuard guard = thread_guard != HostReadGuard::kUnset ? thread_guard : process_guard.load();
  if (guard != HostReadGuard::kGuard) buffer.on_host = true;
  // Who would wait for itself copies instead, which is refused in words.
  args.is_on_cpu = buffer.on_host && !buffer.defined->WaitsForItself();
}

void ReadyEvent(PJRT_Buffer_ReadyEvent_Args& args) { args.event = new PJRT_Event{Checked(args.buffer).defined}; }

std::byte* Data(PJRT_Buffer* buffer) { return Checked(buffer).buffer->storage()->allocation->data(); }

void UnsafePointer(PJRT_Buffer_UnsafePointer_Args& args) {
  args.buffer_pointer = reinterpret_cast<uintptr_t>(Data(args.buffer));
}

void OpaquePointer(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args& args) { args.device_memory_ptr = Data(args.buffer); }

void IncreaseReferences(PJRT_Buffer_IncreaseExternalReferenceCount_Args& args) {
  // Who wants to read the memory waits for it next, perhaps on an event that was asked for before.
  if (const std::optional<Error> error = Checked(args.buffer).defined->WaitsForItself()) throw *error;
  Checked(args.buffer).buffer->IncreaseExternalReferences();
}

void DecreaseReferences(PJRT_Buffer_DecreaseExternalReferenceCount_Args& args) {
  Checked(args.buffer).buffer->DecreaseExternalReferences();
}

// A copy in `memory`, filled when the source is defined.
PJRT_Buffer* Copy(PJRT_Buffer& source, MemoryObject& memory) {
  const StorageRef from = source.buffer->storage();
  const auto dims = source.buffer->dims();
  EventRef defined = std::make_shared<Event>();
  defined->QueuedOn(from->defined->queued_on());
  std::unique_ptr<Buffer> copy = memory.device->device->Uninitialized(
      memory.space, source.buffer->dtype(), {dims.begin(), dims.end()}, source.buffer->minor_to_major(), defined);
  const StorageRef to = copy->storage();
  const size_t bytes = source.buffer->bytes();
  from->defined->OnReady([from, to, defined, bytes](const std::optional<Error>& error) {
    if (!error && bytes > 0) std::memcpy(to->allocation->data(), from->allocation->data(), bytes);
    defined->Set(error);
  });
  return NewBuffer(*memory.device->client, std::move(copy));
}

void CopyToDevice(PJRT_Buffer_CopyToDevice_Args& args) {
  PJRT_Buffer& source = Checked(args.buffer);
  PJRT_Device& device = Required(args.dst_device, "dst_device");
  args.dst_buffer = Copy(source, ToMemory(device.memory_handles.front(), "dst_device's memory"));
}

void CopyToMemory(PJRT_Buffer_CopyToMemory_Args& args) {
  PJRT_Buffer& source = Checked(args.buffer);
  args.dst_buffer = Copy(source, ToMemory(args.dst_memory, "dst_memory"));
}

// The same memory seen as another type or shape.
void Bitcast(PJRT_Buffer_Bitcast_Args& args) {
  PJRT_Buffer& source = Checked(args.buffer);
  const DType dtype = ToDType(args.element_type);
  const auto dims = Required(args.dims, args.num_dims, "dims");
  std::vector<int64_t> order = DeviceLayout(args.device_layout, dtype, dims);
  const size_t bytes = DenseBytes(dtype, dims);
  if (bytes != source.buffer->bytes()) {
    throw InvalidArgument("a bitcast keeps the size: " + std::to_string(source.buffer->bytes()) +
                          " bytes cannot be seen as " + std::to_string(bytes));
  }
  args.out_buffer = NewBuffer(*source.client, std::make_unique<Buffer>(source.memory->space, dtype,
                                                                       std::vector<int64_t>(dims.begin(), dims.end()),
                                                                       std::move(order), source.buffer->storage()));
}

// What the client calls back when the dependency of a donated buffer is met.
struct ControlDependency {
  PJRT_METAL_HANDLE(ControlDependency)
  StorageRef from;
  EventRef defined;
};

void DependencyReady(PJRT_Buffer_DonateWithControlDependency_Callback_Args* args) {
  if (args == nullptr || !PJRT_METAL_HAS(*args, callback_data) || args->callback_data == nullptr) {
    return;
  }
  auto* const given = static_cast<ControlDependency*>(args->callback_data);
  if (!ControlDependency::pool().Owns(given)) return;  // called before
  const std::unique_ptr<ControlDependency> dependency(given);
  std::optional<Error> failure;
  try {
    CheckStructSize(args->struct_size, StructSize<PJRT_Buffer_DonateWithControlDependency_Callback_Args>(),
                    typeid(*args));
    if (args->error_code != PJRT_Error_Code_OK) {
      failure = ErrorFromClient(args->error_code, args->error_message, args->error_message_size);
    }
  } catch (const Error& error) {
    failure = error;
  }
  dependency->from->defined->OnReady(
      [failure, from = dependency->from, defined = dependency->defined](const std::optional<Error>& error) {
        defined->Set(failure ? failure : error);
      });
}

// A buffer that takes the memory over and is defined once the dependency is met, too.
void DonateWithControlDependency(PJRT_Buffer_DonateWithControlDependency_Args& args) {
  PJRT_Buffer& source = Checked(args.buffer);
  source.buffer->storage();  // throws if it was deleted
  const StorageRef from = source.buffer->Donate();
  if (from == nullptr) {
    throw FailedPrecondition("the buffer cannot be donated: its memory has other users");
  }
  EventRef defined = std::make_shared<Event>();
  auto storage = std::make_shared<Storage>();
  storage->allocation = from->allocation;
  storage->defined = defined;
  storage->on_release = [from] {};  // the donor's own release follows this one's
  const auto dims = source.buffer->dims();
  const auto order = source.buffer->minor_to_major();
  args.out_buffer =
      NewBuffer(*source.client, std::make_unique<Buffer>(source.memory->space, source.buffer->dtype(),
                                                         std::vector<int64_t>(dims.begin(), dims.end()),
                                                         std::vector<int64_t>(order.begin(), order.end()), storage));
  args.callback_data = new ControlDependency{from, std::move(defined)};
  args.dependency_ready_callback = DependencyReady;
}

}  // namespace

void FillBufferFunctions(PJRT_Api& api) {
  api.PJRT_Buffer_Destroy = Entry<Destroy>;
  api.PJRT_Buffer_ElementType = Entry<ElementType>;
  api.PJRT_Buffer_Dimensions = Entry<Dimensions>;
  api.PJRT_Buffer_UnpaddedDimensions = Entry<UnpaddedDimensions>;
  api.PJRT_Buffer_DynamicDimensionIndices = Entry<DynamicDimensionIndices>;
  api.PJRT_Buffer_GetMemoryLayout = Entry<GetMemoryLayout>;
  api.PJRT_Buffer_OnDeviceSizeInBytes = Entry<OnDeviceSize>;
  api.PJRT_Buffer_Device = Entry<GetDevice>;
  api.PJRT_Buffer_Memory = Entry<GetMemory>;
  api.PJRT_Buffer_Delete = Entry<Delete>;
  api.PJRT_Buffer_IsDeleted = Entry<IsDeleted>;
  api.PJRT_Buffer_IsOnCpu = Entry<IsOnCpu>;
  api.PJRT_Buffer_ReadyEvent = Entry<ReadyEvent>;
  api.PJRT_Buffer_UnsafePointer = Entry<UnsafePointer>;
  api.PJRT_Buffer_OpaqueDeviceMemoryDataPointer = Entry<OpaquePointer>;
  api.PJRT_Buffer_IncreaseExternalReferenceCount = Entry<IncreaseReferences>;
  api.PJRT_Buffer_DecreaseExternalReferenceCount = Entry<DecreaseReferences>;
  api.PJRT_Buffer_CopyToDevice = Entry<CopyToDevice>;
  api.PJRT_Buffer_CopyToMemory = Entry<CopyToMemory>;
  api.PJRT_Buffer_Bitcast = Entry<Bitcast>;
  api.PJRT_Buffer_DonateWithControlDependency = Entry<DonateWithControlDependency>;
}

}  // namespace pjrt_metal
