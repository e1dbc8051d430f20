// Transfers in pieces: the asynchronous host-to-device manager, and the streams of receive
// callbacks.
#include <cstring>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/layout.h"
#include "csrc/pjrt/objects.h"

// Buffers being filled by the host; each is defined with its last transfer.
struct PJRT_AsyncHostToDeviceTransferManager {
  PJRT_METAL_HANDLE(PJRT_AsyncHostToDeviceTransferManager)
  struct Transfer {
    std::unique_ptr<PJRT_Buffer> buffer;  // until it is retrieved
    pjrt_metal::StorageRef storage;
    pjrt_metal::DType dtype;
    std::vector<int64_t> dims, minor_to_major;
    size_t bytes;
  };
  PJRT_Device* device;
  std::mutex mutex;
  std::vector<Transfer> transfers;
};

namespace pjrt_metal {
namespace {

using Manager = PJRT_AsyncHostToDeviceTransferManager;

void CreateBuffers(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args& args) {
  PJRT_Client& client = Required(args.client, "client");
  PJRT_Memory* const given =
      args.memory != nullptr ? args.memory : client.device_handles.front()->memory_handles.front();
  MemoryObject& memory = ToMemory(given, "memory");
  if (memory.device->client != &client) throw InvalidArgument("the memory is of another client");
  const auto shapes = Required(args.shape_specs, args.num_shape_specs, "shape_specs");
  const auto layouts = Required(args.device_layouts, args.num_device_layouts, "device_layouts");
  if (!layouts.empty() && layouts.size() != shapes.size()) {
    throw InvalidArgument(std::to_string(layouts.size()) + " device_layouts for " + std::to_string(shapes.size()) +
                          " shape_specs");
  }
  auto manager = std::make_unique<Manager>();
  manager->device = memory.device;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const PJRT_ShapeSpec& shape = shapes[i];
    CheckStructSize(shape.struct_size, StructSize<PJRT_ShapeSpec>(), typeid(shape));
    const DType dtype = ToDType(shape.element_type);
    const auto dims = Required(shape.dims, shape.num_dims, "shape_specs' dims");
    std::vector<int64_t> order = DeviceLayout(layouts.empty() ? nullptr : layouts[i], dtype, dims);
    std::vector<int64_t> sizes(dims.begin(), dims.end());
    auto buffer = memory.device->device->Uninitialized(memory.space, dtype, sizes, order, std::make_shared<Event>());
    StorageRef storage = buffer->storage();
    const size_t bytes = buffer->bytes();
    manager->transfers.push_back({std::unique_ptr<PJRT_Buffer>(NewBuffer(client, std::move(buffer))),
                                  std::move(storage), dtype, std::move(sizes), std::move(order), bytes});
  }
  args.transfer_manager = manager.release();
}

// Buffers that were never completed get an error, so that nobody waits for them.
void Destroy(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args& args) {
  if (args.transfer_manager == nullptr || IsForked()) return;
  const std::unique_ptr<Manager> manager(&Required(args.transfer_manager, "transfer_manager"));
  for (const auto& transfer : manager->transfers) {
    transfer.storage->defined->Set(
        Error(Code::kCancelled, "the transfer manager was destroyed before the last transfer"));
  }
}

Manager& Checked(Manager* manager) { return Required(manager, "transfer_manager"); }

Manager::Transfer& At(Manager* manager, int index) {
  auto& transfers = Checked(manager).transfers;
  if (index < 0 || index >= static_cast<int>(transfers.size())) {
    throw InvalidArgument("buffer_index " + std::to_string(index) + " is not below " +
                          std::to_string(transfers.size()));
  }
  return transfers[index];
}

void CheckIncomplete(const Manager::Transfer& transfer, int index) {
  if (transfer.storage->defined->IsReady()) {
    throw FailedPrecondition("buffer " + std::to_string(index) + " has had its last transfer");
  }
}

// The copy is done when the call returns: host and device share the memory.
void TransferData(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args& args) {
  Manager::Transfer& transfer = At(args.transfer_manager, args.buffer_index);
  const auto bytes = static_cast<int64_t>(transfer.bytes);
  if (args.offset < 0 || args.transfer_size < 0 || args.offset > bytes || args.transfer_size > bytes - args.offset) {
    throw InvalidArgument("bytes " + std::to_string(args.offset) + " + " + std::to_string(args.transfer_size) +
                          " are not in buffer " + std::to_string(args.buffer_index) + " of " + std::to_string(bytes));
  }
  const auto data = Required(static_cast<const char*>(args.data), static_cast<size_t>(args.transfer_size), "data");
  const std::lock_guard lock(args.transfer_manager->mutex);
  CheckIncomplete(transfer, args.buffer_index);
  auto event = std::make_unique<PJRT_Event>(PJRT_Event{Event::Ready()});
  if (!data.empty()) {
    std::memcpy(transfer.storage->allocation->data() + args.offset, data.data(), data.size());
  }
  if (args.is_last_transfer) transfer.storage->defined->Set();
  args.done_with_h2d_transfer = event.release();
}

void TransferLiteral(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args& args) {
  Manager::Transfer& transfer = At(args.transfer_manager, args.buffer_index);
  const DType dtype = ToDType(args.shape_element_type);
  const auto dims = Required(args.shape_dims, args.shape_num_dims, "shape_dims");
  if (dtype != transfer.dtype || !std::equal(dims.begin(), dims.end(), transfer.dims.begin(), transfer.dims.end())) {
    throw InvalidArgument("the literal's shape is not that of buffer " + std::to_string(args.buffer_index));
  }
  // A literal is dense in its own layout, and as long as the buffer.
  const std::vector<int64_t> strides =
      HostStrides(args.shape_layout, dtype, dims, DefaultLayout(dims.size()), transfer.bytes);
  if (args.data == nullptr && transfer.bytes > 0) throw InvalidArgument("data is null");
  const std::lock_guard lock(args.transfer_manager->mutex);
  CheckIncomplete(transfer, args.buffer_index);
  auto event = std::make_unique<PJRT_Event>(PJRT_Event{Event::Ready()});
  const size_t element = Info(dtype).host_bits / 8;
  if (transfer.bytes > 0) {
    CopyStrided(static_cast<const std::byte*>(args.data), strides, transfer.storage->allocation->data(),
                DenseStrides(dims, transfer.minor_to_major, element), dims, element);
  }
  transfer.storage->defined->Set();
  args.done_with_h2d_transfer = event.release();
}

void RetrieveBuffer(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args& args) {
  Manager::Transfer& transfer = At(args.transfer_manager, args.buffer_index);
  const std::lock_guard lock(args.transfer_manager->mutex);
  if (transfer.buffer == nullptr) {
    throw FailedPrecondition("buffer " + std::to_string(args.buffer_index) + " was retrieved already");
  }
  args.buffer_out = transfer.buffer.release();
}

void GetDevice(PJRT_AsyncHostToDeviceTransferManager_Device_Args& args) {
  args.device_out = Checked(args.transfer_manager).device;
}

void BufferCount(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args& args) {
  args.buffer_count = Checked(args.transfer_manager).transfers.size();
}

void BufferSize(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args& args) {
  args.buffer_size = At(args.transfer_manager, args.buffer_index).bytes;
}

void SetBufferError(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args& args) {
  Manager::Transfer& transfer = At(args.transfer_manager, args.buffer_index);
  if (args.error_code == PJRT_Error_Code_OK) throw InvalidArgument("error_code is OK");
  Error error = ErrorFromClient(args.error_code, args.error_message, args.error_message_size);
  const std::lock_guard lock(args.transfer_manager->mutex);
  CheckIncomplete(transfer, args.buffer_index);
  transfer.storage->defined->Set(std::move(error));
}

// Metadata is advice for profilers; there is nothing here to advise.
void AddMetadata(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args& args) {
  Checked(args.transfer_manager);
  OptionsFromClient(args.transfer_metadata, args.num_metadata);
}

// Streams are made for receive callbacks only, which Execute refuses: a client has none to pass.
PJRT_CopyToDeviceStream& NoStream(PJRT_CopyToDeviceStream* stream) {
  Required(reinterpret_cast<char*>(stream), "stream");
  throw Unimplemented("this plugin makes no PJRT_CopyToDeviceStream");
}

void AddChunk(PJRT_CopyToDeviceStream_AddChunk_Args& args) { NoStream(args.stream); }
void TotalBytes(PJRT_CopyToDeviceStream_TotalBytes_Args& args) { NoStream(args.stream); }
void GranuleSize(PJRT_CopyToDeviceStream_GranuleSize_Args& args) { NoStream(args.stream); }
void CurrentBytes(PJRT_CopyToDeviceStream_CurrentBytes_Args& args) { NoStream(args.stream); }
void DestroyStream(PJRT_CopyToDeviceStream_Destroy_Args& args) {
  if (args.stream != nullptr) NoStream(args.stream);
}

}  // namespace

void FillTransferFunctions(PJRT_Api& api) {
  api.PJRT_Client_CreateBuffersForAsyncHostToDevice = Entry<CreateBuffers>;
  api.PJRT_AsyncHostToDeviceTransferManager_Destroy = Entry<Destroy>;
  api.PJRT_AsyncHostToDeviceTransferManager_TransferData = Entry<TransferData>;
  api.PJRT_AsyncHostToDeviceTransferManager_TransferLiteral = Entry<TransferLiteral>;
  api.PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer = Entry<RetrieveBuffer>;
  api.PJRT_AsyncHostToDeviceTransferManager_Device = Entry<GetDevice>;
  api.PJRT_AsyncHostToDeviceTransferManager_BufferCount = Entry<BufferCount>;
  api.PJRT_AsyncHostToDeviceTransferManager_BufferSize = Entry<BufferSize>;
  api.PJRT_AsyncHostToDeviceTransferManager_SetBufferError = Entry<SetBufferError>;
  api.PJRT_AsyncHostToDeviceTransferManager_AddMetadata = Entry<AddMetadata>;
  api.PJRT_CopyToDeviceStream_AddChunk = Entry<AddChunk>;
  api.PJRT_CopyToDeviceStream_TotalBytes = Entry<TotalBytes>;
  api.PJRT_CopyToDeviceStream_GranuleSize = Entry<GranuleSize>;
  api.PJRT_CopyToDeviceStream_CurrentBytes = Entry<CurrentBytes>;
  api.PJRT_CopyToDeviceStream_Destroy = Entry<DestroyStream>;
}

}  // namespace pjrt_metal
