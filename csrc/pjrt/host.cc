// Buffers made from host memory, and buffers read back into it. Nothing here waits for a buffer:
// copies that need one are queued behind its event, since callers may hold what its producer needs
// (Python's GIL).
#include <cstring>
#include <memory>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/layout.h"
#include "csrc/pjrt/objects.h"

// Who may fulfill an alias buffer: its storage, until then.
struct PJRT_FulfillAliasBufferCallback {
  PJRT_METAL_HANDLE(PJRT_FulfillAliasBufferCallback)
  pjrt_metal::StorageRef alias;
  size_t bytes;
};

namespace pjrt_metal {
namespace {

std::vector<int64_t> ToVector(std::span<const int64_t> values) { return {values.begin(), values.end()}; }

// `memory`, or `device`'s default one, or the first device's.
MemoryObject& Destination(PJRT_Client& client, PJRT_Device* device, PJRT_Memory* memory) {
  if (memory == nullptr) {
    if (device == nullptr) device = client.device_handles.front();
    memory = Required(device, "device").memory_handles.front();
  }
  MemoryObject& object = ToMemory(memory, "memory");
  if (object.device->client != &client) throw InvalidArgument("the memory is of another client");
  if (device != nullptr && object.device != device) {
    throw InvalidArgument("device and memory do not belong together");
  }
  return object;
}

void FromHost(PJRT_Client_BufferFromHostBuffer_Args& args) {
  PJRT_Client& client = Required(args.client, "client");
  const DType dtype = ToDType(args.type);
  const auto dims = Required(args.dims, args.num_dims, "dims");
  const auto strides = Required(args.byte_strides, args.num_byte_strides, "byte_strides");
  if (!strides.empty() && strides.size() != dims.size()) {
    throw InvalidArgument("byte_strides has " + std::to_string(strides.size()) + " entries, the array has " +
                          std::to_string(dims.size()) + " dimensions");
  }
  MemoryObject& memory = Destination(client, args.device, args.memory);
  const std::vector<int64_t> order = DeviceLayout(args.device_layout, dtype, dims);
  if (args.data == nullptr && DenseBytes(dtype, dims) > 0) throw InvalidArgument("data is null");
  const PJRT_HostBufferSemantics semantics = args.host_buffer_semantics;
  if (semantics < PJRT_HostBufferSemantics_kImmutableOnlyDuringCall ||
      semantics > PJRT_HostBufferSemantics_kMutableZeroCopy) {
    throw InvalidArgument("unknown host_buffer_semantics " + std::to_string(semantics));
  }
  const bool zero_copy = semantics >= PJRT_HostBufferSemantics_kImmutableZeroCopy;
  EventRef done = std::make_shared<Event>();
  std::unique_ptr<Buffer> buffer = memory.device->device->FromHost(memory.space, args.data, dtype, ToVector(dims),
                                                                   strides, order, zero_copy, [done] { done->Set(); });
  if (semantics == PJRT_HostBufferSemantics_kImmutableOnlyDuringCall) {
    done->Await();  // a copy by the host: needs nobody else
  }
  auto event = std::make_unique<PJRT_Event>(PJRT_Event{std::move(done)});
  args.buffer = NewBuffer(client, std::move(buffer));
  args.done_with_host_buffer = event.release();
}

void CreateView(PJRT_Client_CreateViewOfDeviceBuffer_Args& args) {
  PJRT_Client& client = Required(args.client, "client");
  const DType dtype = ToDType(args.element_type);
  const auto dims = Required(args.dims, args.num_dims, "dims");
  PJRT_Memory* const given = PJRT_METAL_HAS(args, memory) ? args.memory : nullptr;
  MemoryObject& memory = Destination(client, args.device, given);
  std::vector<int64_t> order = DeviceLayout(args.layout, dtype, dims);
  const size_t bytes = DenseBytes(dtype, dims);
  auto storage = std::make_shared<Storage>();
  if (bytes == 0) {
    storage->allocation = memory.device->device->allocator().Allocate(0, "empty view");
  } else {
    Required(static_cast<char*>(args.device_buffer_ptr), "device_buffer_ptr");
    storage->allocation = memory.device->device->device()->Wrap(args.device_buffer_ptr, bytes);
    if (storage->allocation == nullptr) {
      throw InvalidArgument(
          "this device cannot use the memory at device_buffer_ptr in place "
          "(alignment): copy it with BufferFromHostBuffer");
    }
  }
  storage->defined = Event::Ready();
  PJRT_Buffer* const result =
      NewBuffer(client, std::make_unique<Buffer>(memory.space, dtype, ToVector(dims), std::move(order), storage));
  // Last, so that a failing call does not report a deletion.
  if (args.on_delete_callback != nullptr) {
    storage->on_release = [callback = args.on_delete_callback, data = args.device_buffer_ptr,
                           user_arg = args.on_delete_callback_arg] { callback(data, user_arg); };
  }
  args.buffer = result;
}

// A buffer of the client's shape whose contents come with `defined`.
template <typename Args>
std::unique_ptr<Buffer> Undefined(const Args& args, MemoryObject& memory, EventRef defined) {
  const DType dtype = ToDType(args.shape_element_type);
  const auto dims = Required(args.shape_dims, args.shape_num_dims, "shape_dims");
  const std::vector<int64_t> order = DeviceLayout(args.shape_layout, dtype, dims);
  return memory.device->device->Uninitialized(memory.space, dtype, ToVector(dims), order, std::move(defined));
}

void CreateUninitialized(PJRT_Client_CreateUninitializedBuffer_Args& args) {
  PJRT_Client& client = Required(args.client, "client");
  MemoryObject& memory = Destination(client, args.device, args.memory);
  args.buffer = NewBuffer(client, Undefined(args, memory, Event::Ready()));
}

void CreateError(PJRT_Client_CreateErrorBuffer_Args& args) {
  PJRT_Client& client = Required(args.client, "client");
  if (args.error_code == PJRT_Error_Code_OK) throw InvalidArgument("error_code is OK");
  Error error = ErrorFromClient(args.error_code, args.error_message, args.error_message_size);
  MemoryObject& memory = Destination(client, nullptr, args.memory);
  args.buffer = NewBuffer(client, Undefined(args, memory, Event::Failed(std::move(error))));
}

void CreateAlias(PJRT_Client_CreateAliasBuffer_Args& args) {
  PJRT_Client& client = Required(args.client, "client");
  MemoryObject& memory = Destination(client, nullptr, args.memory);
  std::unique_ptr<Buffer> alias = Undefined(args, memory, std::make_shared<Event>());
  auto fulfill = std::make_unique<PJRT_FulfillAliasBufferCallback>(
      PJRT_FulfillAliasBufferCallback{alias->storage(), alias->bytes()});
  args.alias_buffer = NewBuffer(client, std::move(alias));
  args.fulfill_alias_buffer_cb = fulfill.release();
}

// The alias has memory of its own from the start, so that its address is known: fulfilling copies.
void FulfillAlias(PJRT_Client_FulfillAliasBuffer_Args& args) {
  Required(args.client, "client");
  Required(args.fulfill_alias_buffer_cb, "fulfill_alias_buffer_cb");
  if (args.status_code != PJRT_Error_Code_OK) {
    Error error = ErrorFromClient(args.status_code, args.error_message, args.error_message_size);
    const std::unique_ptr<PJRT_FulfillAliasBufferCallback> fulfill(args.fulfill_alias_buffer_cb);
    fulfill->alias->defined->Set(std::move(error));
    return;
  }
  const Buffer& source = *Required(args.buffer, "buffer").buffer;
  const StorageRef from = source.storage();
  if (source.bytes() != args.fulfill_alias_buffer_cb->bytes) {
    throw InvalidArgument("the alias has " + std::to_string(args.fulfill_alias_buffer_cb->bytes) +
                          " bytes, the buffer that is to fulfill it " + std::to_string(source.bytes()));
  }
  const std::unique_ptr<PJRT_FulfillAliasBufferCallback> fulfill(args.fulfill_alias_buffer_cb);
  from->defined->OnReady([from, to = fulfill->alias, bytes = fulfill->bytes](const std::optional<Error>& error) {
    if (!error && bytes > 0) {
      std::memcpy(to->allocation->data(), from->allocation->data(), bytes);
    }
    to->defined->Set(error);
  });
}

// jaxlib (0.10.2 to 0.12) always passes the address of a layout that it has destroyed: what lies there is some of the
// layout and some of whatever took the stack and the heap since, and may look like another valid one. It always wants
// the array's own layout, so its clients are made with ignore_host_layout (pjrt_metal/registration.py), and what the
// address points to is not even read.
const PJRT_Buffer_MemoryLayout* AskedLayout(const PJRT_Buffer_ToHostBuffer_Args& args) {
  return args.src->client->runtime.ignores_host_layout() ? nullptr : args.host_layout;
}

void ToHost(PJRT_Buffer_ToHostBuffer_Args& args) {
  const Buffer& source = *Required(args.src, "src").buffer;
  const DType dtype = source.dtype();
  const StorageRef from = source.storage();
  if (const std::optional<Error> error = from->defined->WaitsForItself()) throw *error;
  if (args.dst == nullptr) {
    args.dst_size = source.bytes();
    args.event = nullptr;
    return;
  }
  std::vector<int64_t> dims = ToVector(source.dims());
  std::vector<int64_t> to_strides = HostStrides(AskedLayout(args), dtype, dims, source.minor_to_major(), args.dst_size);
  const size_t element = Info(dtype).host_bits / 8;
  std::vector<int64_t> from_strides = DenseStrides(dims, source.minor_to_major(), element);
  auto event = std::make_unique<PJRT_Event>(PJRT_Event{std::make_shared<Event>()});
  from->defined->OnReady([from, from_strides = std::move(from_strides), to = static_cast<std::byte*>(args.dst),
                          to_strides = std::move(to_strides), dims = std::move(dims), element, bytes = source.bytes(),
                          done = event->event](const std::optional<Error>& error) {
    if (!error && from_strides == to_strides) {
      if (bytes > 0) std::memcpy(to, from->allocation->data(), bytes);
    } else if (!error) {
      CopyStrided(from->allocation->data(), from_strides, to, to_strides, dims, element);
    }
    done->Set(error);
  });
  args.event = event.release();
}

// Throws unless `size` bytes from `offset` lie in the buffer.
void CheckRange(const Buffer& buffer, int64_t offset, int64_t size) {
  const auto bytes = static_cast<int64_t>(buffer.bytes());
  if (offset < 0 || size < 0 || offset > bytes || size > bytes - offset) {
    throw InvalidArgument("bytes " + std::to_string(offset) + " to " + std::to_string(offset) + " + " +
                          std::to_string(size) + " are not in the buffer's " + std::to_string(bytes));
  }
}

struct RawCopy {
  PJRT_METAL_HANDLE(RawCopy)
  StorageRef from;
  int64_t offset, size;
  EventRef done;

  void To(void* destination) const {
    from->defined->OnReady([copy = *this, destination](const std::optional<Error>& error) {
      if (!error && copy.size > 0) {
        std::memcpy(destination, copy.from->allocation->data() + copy.offset, copy.size);
      }
      copy.done->Set(error);
    });
  }
};

void CopyRaw(PJRT_Buffer_CopyRawToHost_Args& args) {
  const Buffer& source = *Required(args.buffer, "buffer").buffer;
  CheckRange(source, args.offset, args.transfer_size);
  if (args.dst == nullptr && args.transfer_size > 0) throw InvalidArgument("dst is null");
  auto event = std::make_unique<PJRT_Event>(PJRT_Event{std::make_shared<Event>()});
  RawCopy{source.storage(), args.offset, args.transfer_size, event->event}.To(args.dst);
  args.event = event.release();
}

// Called once by the client when it knows the destination, or an error.
void DestinationReady(PJRT_Buffer_CopyRawToHostFuture_Callback_Args* args) {
  if (args == nullptr || !PJRT_METAL_HAS(*args, callback_data) || args->callback_data == nullptr) {
    return;
  }
  auto* const given = static_cast<RawCopy*>(args->callback_data);
  if (!RawCopy::pool().Owns(given)) return;  // called before
  const std::unique_ptr<RawCopy> copy(given);
  try {
    CheckStructSize(args->struct_size, StructSize<PJRT_Buffer_CopyRawToHostFuture_Callback_Args>(), typeid(*args));
    if (args->error_code != PJRT_Error_Code_OK) {
      throw ErrorFromClient(args->error_code, args->error_message, args->error_message_size);
    }
    if (args->dst == nullptr && copy->size > 0) throw InvalidArgument("dst is null");
    copy->To(args->dst);
  } catch (const Error& error) {
    copy->done->Set(error);
  }
}

void CopyRawFuture(PJRT_Buffer_CopyRawToHostFuture_Args& args) {
  const Buffer& source = *Required(args.buffer, "buffer").buffer;
  CheckRange(source, args.offset, args.transfer_size);
  EventRef done = std::make_shared<Event>();
  auto copy = std::make_unique<RawCopy>(RawCopy{source.storage(), args.offset, args.transfer_size, done});
  args.event = new PJRT_Event{std::move(done)};
  args.callback_data = copy.release();
  args.future_ready_callback = DestinationReady;
}

}  // namespace

void FillHostFunctions(PJRT_Api& api) {
  api.PJRT_Client_BufferFromHostBuffer = Entry<FromHost>;
  api.PJRT_Client_CreateViewOfDeviceBuffer =
      Entry<CreateView, PJRT_METAL_THROUGH(PJRT_Client_CreateViewOfDeviceBuffer_Args, buffer)>;
  api.PJRT_Client_CreateUninitializedBuffer = Entry<CreateUninitialized>;
  api.PJRT_Client_CreateErrorBuffer =
      Entry<CreateError, PJRT_METAL_THROUGH(PJRT_Client_CreateErrorBuffer_Args, buffer)>;
  api.PJRT_Client_CreateAliasBuffer = Entry<CreateAlias>;
  api.PJRT_Client_FulfillAliasBuffer = Entry<FulfillAlias>;
  api.PJRT_Buffer_ToHostBuffer = Entry<ToHost>;
  api.PJRT_Buffer_CopyRawToHost = Entry<CopyRaw>;
  api.PJRT_Buffer_CopyRawToHostFuture = Entry<CopyRawFuture>;
}

}  // namespace pjrt_metal
