// What makes arrays, and what reads, copies and views them, by all the ways of the C API.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <string>

#include "tests/robustness/attack_api.h"

namespace pjrt_metal::attack {

std::vector<int64_t> Round::Dims() {
  std::vector<int64_t> dims(random_.Below(6));
  for (int64_t& dim : dims) dim = static_cast<int64_t>(random_.Below(6));
  if (random_.OneIn(6) && !dims.empty()) {
    const int64_t bad[] = {-1, INT64_MIN, INT64_MAX, int64_t{1} << 31, int64_t{1} << 62, (int64_t{1} << 40) + 1};
    for (int64_t& dim : dims) {
      if (random_.OneIn(2)) dim = bad[random_.Below(std::size(bad))];
    }
  }
  return dims;
}

PJRT_Buffer_Type Round::Type() {
  if (random_.OneIn(2)) return PJRT_Buffer_Type_F32;
  return static_cast<PJRT_Buffer_Type>(random_.OneIn(8) ? static_cast<int>(random_.Odd(32)) : random_.Below(32));
}

PJRT_Buffer_MemoryLayout* Round::Layout(size_t rank) {
  if (!random_.OneIn(3)) return nullptr;
  if (random_.OneIn(8)) ++rank;
  order_.resize(rank);
  for (size_t i = 0; i < rank; ++i) order_[i] = static_cast<int64_t>(i);
  std::shuffle(order_.begin(), order_.end(), std::mt19937_64(random_.Next()));
  if (random_.OneIn(8) && rank > 0) order_[random_.Below(rank)] = static_cast<int64_t>(random_.Odd());
  layout_ = New<PJRT_Buffer_MemoryLayout>();
  layout_.type = static_cast<PJRT_Buffer_MemoryLayout_Type>(random_.OneIn(10) ? 7 : random_.Below(2));
  if (layout_.type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    layout_.strides.struct_size = sizeof layout_.strides;
    layout_.strides.byte_strides = order_.data();
    layout_.strides.num_byte_strides = rank;
    for (int64_t& stride : order_) {
      stride = random_.OneIn(9) ? static_cast<int64_t>(random_.Odd()) : static_cast<int64_t>(4 * random_.Below(9));
    }
  } else {
    layout_.tiled.struct_size = random_.OneIn(10) ? random_.Below(60) : sizeof layout_.tiled;
    layout_.tiled.minor_to_major = random_.OneIn(20) ? nullptr : order_.data();
    layout_.tiled.minor_to_major_size = rank;
    if (random_.OneIn(20)) layout_.tiled.num_tiles = random_.Odd();
  }
  if (random_.OneIn(15)) layout_.struct_size = random_.Below(sizeof layout_);
  return &layout_;
}

bool Round::IsDefined(PJRT_Buffer* buffer) {
  auto args = New<PJRT_Buffer_ReadyEvent_Args>();
  args.buffer = buffer;
  if (!Good(api_.PJRT_Buffer_ReadyEvent, args)) return false;
  const bool ready = IsReady(args.event);
  auto destroy = New<PJRT_Event_Destroy_Args>();
  destroy.event = args.event;
  if (!Good(api_.PJRT_Event_Destroy, destroy)) std::abort();
  return ready;
}

size_t Round::Bytes(PJRT_Buffer* buffer) {
  auto args = New<PJRT_Buffer_OnDeviceSizeInBytes_Args>();
  args.buffer = buffer;
  return Good(api_.PJRT_Buffer_OnDeviceSizeInBytes, args) ? args.on_device_size_in_bytes : 0;
}

char* Round::Target(size_t size) {
  targets_.emplace_back(new char[std::max<size_t>(size, 1)]);
  return targets_.back().get();
}

void Round::FromHost() {
  const std::vector<int64_t> dims = Dims();
  auto args = New<PJRT_Client_BufferFromHostBuffer_Args>();
  args.client = Any<PJRT_Client>(kClient);
  args.data = random_.OneIn(20) ? nullptr : host_memory.data() + (random_.OneIn(4) ? 4 : 0);
  args.type = Type();
  args.dims = random_.OneIn(30) ? nullptr : dims.data();
  args.num_dims = dims.size();
  args.host_buffer_semantics = static_cast<PJRT_HostBufferSemantics>(random_.Below(6));
  // An array used where it is, and longer than the host's memory, is the caller's fault, which nobody can see.
  const bool huge = std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d > 100; });
  if (huge && args.host_buffer_semantics >= PJRT_HostBufferSemantics_kImmutableZeroCopy) return;
  if (random_.OneIn(2)) args.memory = Any<PJRT_Memory>(kMemory);
  if (random_.OneIn(2)) args.device = Any<PJRT_Device>(kDevice);
  args.device_layout = Layout(dims.size());
  const std::vector<int64_t> strides(random_.OneIn(6) ? random_.Below(5) : 0,
                                     4 * static_cast<int64_t>(random_.Below(3)));
  args.byte_strides = strides.data();
  args.num_byte_strides = strides.size();
  if (Call(api_.PJRT_Client_BufferFromHostBuffer, args)) {
    Add(kBuffer, args.buffer);
    Add(kEvent, args.done_with_host_buffer);
  }
}

void Round::ViewOrNew() {
  const std::vector<int64_t> dims = Dims();
  if (random_.OneIn(3)) {
    auto args = New<PJRT_Client_CreateViewOfDeviceBuffer_Args>();
    args.client = Any<PJRT_Client>(kClient);
    args.device_buffer_ptr = random_.OneIn(10) ? nullptr : host_memory.data() + 64 * random_.Below(3);
    args.dims = dims.data();
    args.num_dims = dims.size();
    args.element_type = Type();
    args.layout = Layout(dims.size());
    args.device = Any<PJRT_Device>(kDevice);
    const bool huge = std::any_of(dims.begin(), dims.end(), [](int64_t d) { return d > 100; });
    if (!huge && Call(api_.PJRT_Client_CreateViewOfDeviceBuffer, args)) Add(kBuffer, args.buffer);
  } else if (random_.OneIn(2)) {
    auto args = New<PJRT_Client_CreateUninitializedBuffer_Args>();
    args.client = Any<PJRT_Client>(kClient);
    args.shape_dims = dims.data();
    args.shape_num_dims = dims.size();
    args.shape_element_type = Type();
    args.shape_layout = Layout(dims.size());
    args.memory = Any<PJRT_Memory>(kMemory);
    if (Call(api_.PJRT_Client_CreateUninitializedBuffer, args)) Add(kBuffer, args.buffer);
  } else {
    auto args = New<PJRT_Client_CreateErrorBuffer_Args>();
    args.client = Any<PJRT_Client>(kClient);
    args.error_code = static_cast<PJRT_Error_Code>(random_.Odd(8));
    args.error_message = "made to fail";
    args.error_message_size = random_.Below(13);
    args.shape_dims = dims.data();
    args.shape_num_dims = dims.size();
    args.shape_element_type = Type();
    args.shape_layout = Layout(dims.size());
    args.memory = Any<PJRT_Memory>(kMemory);
    if (Call(api_.PJRT_Client_CreateErrorBuffer, args)) Add(kBuffer, args.buffer);
  }
}

void Round::Alias() {
  const std::vector<int64_t> dims = Dims();
  auto args = New<PJRT_Client_CreateAliasBuffer_Args>();
  args.client = Any<PJRT_Client>(kClient);
  args.memory = Any<PJRT_Memory>(kMemory);
  args.shape_dims = dims.data();
  args.shape_num_dims = dims.size();
  args.shape_element_type = Type();
  args.shape_layout = Layout(dims.size());
  if (!Call(api_.PJRT_Client_CreateAliasBuffer, args)) return;
  Add(kBuffer, args.alias_buffer);
  fulfill_.push_back(args.fulfill_alias_buffer_cb);
}

void Round::Fulfill() {
  if (fulfill_.empty()) return;
  auto* const callback = random_.Pick(fulfill_);
  auto args = New<PJRT_Client_FulfillAliasBuffer_Args>();
  args.client = Any<PJRT_Client>(kClient);
  args.buffer = Any<PJRT_Buffer>(kBuffer);
  args.status_code = random_.OneIn(2) ? PJRT_Error_Code_OK : static_cast<PJRT_Error_Code>(random_.Odd(6));
  args.error_message = "no";
  args.error_message_size = 2;
  args.fulfill_alias_buffer_cb =
      random_.OneIn(6) ? static_cast<PJRT_FulfillAliasBufferCallback*>(From(dead_[kBuffer])) : callback;
  if (args.buffer != nullptr && args.status_code == PJRT_Error_Code_OK && !IsDefined(args.buffer))
    return;  // may be itself
  if (Call(api_.PJRT_Client_FulfillAliasBuffer, args)) std::erase(fulfill_, callback);
}

void Round::AskBuffer() {
  switch (random_.Below(14)) {
    case 0:
      Buffer(api_.PJRT_Buffer_ElementType);
      break;
    case 1:
      Buffer(api_.PJRT_Buffer_Dimensions);
      break;
    case 2:
      Buffer(api_.PJRT_Buffer_UnpaddedDimensions);
      break;
    case 3:
      Buffer(api_.PJRT_Buffer_DynamicDimensionIndices);
      break;
    case 4:
      Buffer(api_.PJRT_Buffer_GetMemoryLayout);
      break;
    case 5:
      Buffer(api_.PJRT_Buffer_Device);
      break;
    case 6:
      Buffer(api_.PJRT_Buffer_Memory);
      break;
    case 7:
      Buffer(api_.PJRT_Buffer_Delete);
      break;
    case 8:
      Buffer(api_.PJRT_Buffer_IsDeleted);
      break;
    case 9:
      Buffer(api_.PJRT_Buffer_IsOnCpu);
      break;
    case 10: {
      auto args = New<PJRT_Buffer_ReadyEvent_Args>();
      args.buffer = Any<PJRT_Buffer>(kBuffer);
      if (Call(api_.PJRT_Buffer_ReadyEvent, args)) Add(kEvent, args.event);
      break;
    }
    case 11:
      Buffer(api_.PJRT_Buffer_IncreaseExternalReferenceCount);
      break;
    case 12:
      Buffer(api_.PJRT_Buffer_DecreaseExternalReferenceCount);
      break;
    default:
      Buffer(api_.PJRT_Buffer_OpaqueDeviceMemoryDataPointer);
      Buffer(api_.PJRT_Buffer_UnsafePointer);
  }
}

void Round::ToHost() {
  auto args = New<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = Any<PJRT_Buffer>(kBuffer);
  args.host_layout = Layout(random_.Below(6));
  const size_t size = IsLive(kBuffer, args.src) ? Bytes(args.src) : random_.Below(100);
  if (size > kHostBytes) return;
  args.dst_size = random_.OneIn(4) ? random_.Below(size + 1) : size;
  args.dst = random_.OneIn(10) ? nullptr : Target(args.dst_size);
  if (Call(api_.PJRT_Buffer_ToHostBuffer, args)) Add(kEvent, args.event);
}

void Round::CopyRaw() {
  PJRT_Buffer* const buffer = Any<PJRT_Buffer>(kBuffer);
  const int64_t offset = static_cast<int64_t>(random_.OneIn(2) ? random_.Odd() : random_.Below(40));
  const int64_t size = static_cast<int64_t>(random_.OneIn(3) ? random_.Odd() : random_.Below(40));
  char* const target = Target(size >= 0 && size < (8 << 20) ? static_cast<size_t>(size) : 1);
  if (random_.OneIn(2)) {
    auto args = New<PJRT_Buffer_CopyRawToHost_Args>();
    args.buffer = buffer;
    args.dst = random_.OneIn(10) ? nullptr : target;
    args.offset = offset;
    args.transfer_size = size;
    if (Call(api_.PJRT_Buffer_CopyRawToHost, args)) Add(kEvent, args.event);
    return;
  }
  auto args = New<PJRT_Buffer_CopyRawToHostFuture_Args>();
  args.buffer = buffer;
  args.offset = offset;
  args.transfer_size = size;
  if (!Call(api_.PJRT_Buffer_CopyRawToHostFuture, args)) return;
  Add(kEvent, args.event);
  for (size_t calls = 1 + random_.Below(2); calls > 0; --calls) {
    auto ready = New<PJRT_Buffer_CopyRawToHostFuture_Callback_Args>();
    ready.callback_data = args.callback_data;
    ready.error_code = static_cast<PJRT_Error_Code>(random_.OneIn(2) ? 0 : random_.Odd(6));
    ready.error_message = "no";
    ready.error_message_size = 2;
    ready.dst = random_.OneIn(8) ? nullptr : target;
    args.future_ready_callback(&ready);
  }
}

void Round::CopyOrBitcast() {
  if (random_.OneIn(3)) {
    const std::vector<int64_t> dims = Dims();
    auto args = New<PJRT_Buffer_Bitcast_Args>();
    args.buffer = Any<PJRT_Buffer>(kBuffer);
    args.element_type = Type();
    args.dims = dims.data();
    args.num_dims = dims.size();
    args.device_layout = Layout(dims.size());
    if (Call(api_.PJRT_Buffer_Bitcast, args)) Add(kBuffer, args.out_buffer);
  } else if (random_.OneIn(2)) {
    auto args = New<PJRT_Buffer_CopyToDevice_Args>();
    args.buffer = Any<PJRT_Buffer>(kBuffer);
    args.dst_device = Any<PJRT_Device>(kDevice);
    if (Call(api_.PJRT_Buffer_CopyToDevice, args)) Add(kBuffer, args.dst_buffer);
  } else {
    auto args = New<PJRT_Buffer_CopyToMemory_Args>();
    args.buffer = Any<PJRT_Buffer>(kBuffer);
    args.dst_memory = Any<PJRT_Memory>(kMemory);
    if (Call(api_.PJRT_Buffer_CopyToMemory, args)) Add(kBuffer, args.dst_buffer);
  }
}

void Round::Donate() {
  auto args = New<PJRT_Buffer_DonateWithControlDependency_Args>();
  args.buffer = Any<PJRT_Buffer>(kBuffer);
  if (!Call(api_.PJRT_Buffer_DonateWithControlDependency, args)) return;
  Add(kBuffer, args.out_buffer);
  for (size_t calls = 1 + random_.Below(2); calls > 0; --calls) {
    auto ready = New<PJRT_Buffer_DonateWithControlDependency_Callback_Args>();
    ready.callback_data = args.callback_data;
    ready.error_code = static_cast<PJRT_Error_Code>(random_.OneIn(2) ? 0 : random_.Odd(6));
    ready.error_message = "no";
    ready.error_message_size = 2;
    args.dependency_ready_callback(&ready);
  }
}

void Round::Transfer() {
  PJRT_AsyncHostToDeviceTransferManager* const manager = Any<PJRT_AsyncHostToDeviceTransferManager>(kManager);
  const int index = random_.OneIn(6) ? static_cast<int>(random_.Odd(32)) : static_cast<int>(random_.Below(3));
  switch (random_.Below(6)) {
    case 0: {
      const std::vector<int64_t> dims = Dims();
      std::vector<PJRT_ShapeSpec> shapes(random_.Below(3), New<PJRT_ShapeSpec>());
      for (PJRT_ShapeSpec& shape : shapes) {
        shape.dims = dims.data();
        shape.num_dims = dims.size();
        shape.element_type = Type();
        if (random_.OneIn(20)) shape.struct_size = 8;
      }
      std::vector<PJRT_Buffer_MemoryLayout*> layouts(random_.OneIn(4) ? random_.Below(3) : 0, Layout(dims.size()));
      auto args = New<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>();
      args.client = Any<PJRT_Client>(kClient);
      args.shape_specs = random_.OneIn(20) ? nullptr : shapes.data();
      args.num_shape_specs = shapes.size();
      args.device_layouts = layouts.data();
      args.num_device_layouts = layouts.size();
      args.memory = Any<PJRT_Memory>(kMemory);
      if (Call(api_.PJRT_Client_CreateBuffersForAsyncHostToDevice, args)) Add(kManager, args.transfer_manager);
      break;
    }
    case 1: {
      auto args = New<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>();
      args.transfer_manager = manager;
      args.buffer_index = index;
      args.data = random_.OneIn(10) ? nullptr : host_memory.data();
      args.offset = static_cast<int64_t>(random_.OneIn(4) ? random_.Odd() : random_.Below(20));
      args.transfer_size = static_cast<int64_t>(random_.OneIn(4) ? random_.Odd() : random_.Below(20));
      args.is_last_transfer = random_.OneIn(3);
      if (Call(api_.PJRT_AsyncHostToDeviceTransferManager_TransferData, args)) Add(kEvent, args.done_with_h2d_transfer);
      break;
    }
    case 2: {
      const std::vector<int64_t> dims = Dims();
      auto args = New<PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args>();
      args.transfer_manager = manager;
      args.buffer_index = index;
      args.data = random_.OneIn(10) ? nullptr : host_memory.data();
      args.shape_dims = dims.data();
      args.shape_num_dims = dims.size();
      args.shape_element_type = Type();
      args.shape_layout = Layout(dims.size());
      if (Call(api_.PJRT_AsyncHostToDeviceTransferManager_TransferLiteral, args))
        Add(kEvent, args.done_with_h2d_transfer);
      break;
    }
    case 3: {
      auto args = New<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>();
      args.transfer_manager = manager;
      args.buffer_index = index;
      if (Call(api_.PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, args)) Add(kBuffer, args.buffer_out);
      break;
    }
    case 4: {
      auto args = New<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>();
      args.transfer_manager = manager;
      args.buffer_index = index;
      args.error_code = static_cast<PJRT_Error_Code>(random_.Odd(6));
      args.error_message = "no";
      args.error_message_size = 2;
      Call(api_.PJRT_AsyncHostToDeviceTransferManager_SetBufferError, args);
      break;
    }
    default: {
      auto args = New<PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args>();
      args.transfer_manager = manager;
      args.buffer_index = index;
      Call(api_.PJRT_AsyncHostToDeviceTransferManager_BufferSize, args);
    }
  }
}

}  // namespace pjrt_metal::attack
