// Calls the C API in random orders with bad sizes, nulls, and handles that are gone or of another kind:
// attack_api CORPUS ROUNDS SEED [ONLY]
//
// A round makes a client and gives it some hundred calls. What the C API cannot know is kept right: how much memory
// lies behind a pointer, and that an event is only awaited if somebody will set it. Everything else may be wrong; then
// there is an error, and at the end nothing is left (the leak checker looks).
#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "csrc/pjrt/private_extension.h"
#include "tests/robustness/attack.h"

namespace pjrt_metal::attack {
namespace {

constexpr int kCalls = 300;
// The host's memory behind every pointer to data; no array that is accepted and small is longer.
constexpr size_t kHostBytes = 1 << 19;
alignas(4096) std::array<char, kHostBytes> host_memory;

std::vector<std::vector<char>> programs;  // of the corpus

enum Kind {
  kClient,
  kDevice,
  kMemory,
  kDescription,
  kTopology,
  kBuffer,
  kEvent,
  kExecutable,
  kLoaded,
  kContext,
  kLayout,
  kManager,
  kKinds
};

// Answers as a compiler may, or as none should.
int Compile(const char* code, size_t code_size, const char*, size_t, const char*, size_t, const char*, size_t, int,
            void (*emit)(void*, const char*, size_t), void* sink) {
  const size_t choice = code_size == 0 ? 0 : static_cast<unsigned char>(code[0]);
  if (choice % 3 == 0) {
    emit(sink, "no such program", 15);
    return static_cast<int>(choice) - 100;
  }
  const auto& program = programs[choice % programs.size()];
  emit(sink, program.data(), choice % 3 == 1 ? program.size() : program.size() / 2);
  return 0;
}

const PJRT_Extension_Base* Extension(const PJRT_Api& api, int type) {
  for (const PJRT_Extension_Base* e = api.extension_start; e != nullptr; e = e->next) {
    if (static_cast<int>(e->type) == type) return e;
  }
  std::abort();
}

class Round {
 public:
  Round(uint64_t seed, uint64_t number, uint64_t& errors)
      : api_(*GetPjrtApi()),
        layouts_(*reinterpret_cast<const PJRT_Layouts_Extension*>(Extension(api_, PJRT_Extension_Type_Layouts))),
        ffi_(*reinterpret_cast<const PJRT_FFI_Extension*>(Extension(api_, PJRT_Extension_Type_FFI))),
        random_(seed, number),
        errors_(errors) {}

  void Run() {
    NewClient();
    for (int i = 0; i < kCalls; ++i) Act();
    Clean();
  }

 private:
  // Calls with a struct of the size that it says, or as often with what it should be.
  template <class Args>
  bool Call(PJRT_Error* (*function)(Args*), Args& args) {
    size_t size = sizeof args;
    if (random_.OneIn(12)) {
      const size_t sizes[] = {0, 8, 16, sizeof args - 1, sizeof args + 64, ~size_t{0}, random_.Below(sizeof args)};
      size = sizes[random_.Below(std::size(sizes))];
    }
    if (random_.OneIn(200)) {
      if (Take(api_, function(nullptr)) == 0) std::abort();
      ++errors_;
    }
    args.struct_size = size;
    const size_t room = std::clamp(size, sizeof(size_t), sizeof args);
    void* const exact = std::malloc(room);  // nothing behind the struct may be touched
    std::memcpy(exact, &args, room);
    const int code = Take(api_, function(static_cast<Args*>(exact)));
    std::memcpy(&args, exact, room);
    std::free(exact);
    errors_ += code != 0 ? 1 : 0;
    return code == 0;
  }

  template <class Args>
  bool Good(PJRT_Error* (*function)(Args*), Args& args) {
    args.struct_size = sizeof args;
    return Take(api_, function(&args)) == 0;
  }

  // A handle: mostly a live one of the kind.
  template <class T>
  T* Any(Kind kind) {
    const size_t choice = random_.Below(20);
    if (choice == 0) return nullptr;
    if (choice == 1) return static_cast<T*>(From(dead_[kind]));
    if (choice == 2) return static_cast<T*>(From(live_[random_.Below(kKinds)]));
    if (choice == 3) return static_cast<T*>(From(dead_[random_.Below(kKinds)]));
    return static_cast<T*>(From(live_[kind]));
  }
  void* From(std::vector<void*>& handles) { return handles.empty() ? nullptr : random_.Pick(handles); }
  bool IsLive(Kind kind, const void* handle) const {
    return std::find(live_[kind].begin(), live_[kind].end(), handle) != live_[kind].end();
  }
  void Add(Kind kind, const void* handle) {
    if (handle != nullptr) live_[kind].push_back(const_cast<void*>(handle));
  }
  void Died(Kind kind, void* handle) {
    std::erase(live_[kind], handle);
    dead_[kind].push_back(handle);
    if (dead_[kind].size() > 50) dead_[kind].erase(dead_[kind].begin());
  }
  template <class Args, class T>
  void DestroyOne(PJRT_Error* (*function)(Args*), T* Args::*member, Kind kind, T* handle) {
    auto args = New<Args>();
    args.*member = handle;
    const bool live = IsLive(kind, handle);
    if (Call(function, args) && live) Died(kind, handle);
  }

  void NewClient() {
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

  // Dimensions of an array that fits the host's memory, or that no memory can hold.
  std::vector<int64_t> Dims() {
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
  PJRT_Buffer_Type Type() {
    if (random_.OneIn(2)) return PJRT_Buffer_Type_F32;
    return static_cast<PJRT_Buffer_Type>(random_.OneIn(8) ? static_cast<int>(random_.Odd(32)) : random_.Below(32));
  }

  // A layout of `rank`, or of another one; may be null. Points into members.
  PJRT_Buffer_MemoryLayout* Layout(size_t rank) {
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

  bool IsReady(PJRT_Event* event) {
    auto args = New<PJRT_Event_IsReady_Args>();
    args.event = event;
    return Good(api_.PJRT_Event_IsReady, args) && args.is_ready;
  }
  bool IsDefined(PJRT_Buffer* buffer) {
    auto args = New<PJRT_Buffer_ReadyEvent_Args>();
    args.buffer = buffer;
    if (!Good(api_.PJRT_Buffer_ReadyEvent, args)) return false;
    const bool ready = IsReady(args.event);
    auto destroy = New<PJRT_Event_Destroy_Args>();
    destroy.event = args.event;
    if (!Good(api_.PJRT_Event_Destroy, destroy)) std::abort();
    return ready;
  }
  size_t Bytes(PJRT_Buffer* buffer) {
    auto args = New<PJRT_Buffer_OnDeviceSizeInBytes_Args>();
    args.buffer = buffer;
    return Good(api_.PJRT_Buffer_OnDeviceSizeInBytes, args) ? args.on_device_size_in_bytes : 0;
  }

  void Act() {
    static constexpr void (Round::*kActions[])() = {
        &Round::FromHost,    &Round::FromHost,    &Round::FromHost,      &Round::ViewOrNew, &Round::AskBuffer,
        &Round::AskBuffer,   &Round::ToHost,      &Round::CopyRaw,       &Round::CopyRaw,   &Round::CopyOrBitcast,
        &Round::Donate,      &Round::AskEvent,    &Round::AskEvent,      &Round::Alias,     &Round::Fulfill,
        &Round::AskClient,   &Round::AskDevice,   &Round::AskTopology,   &Round::Load,      &Round::Load,
        &Round::CompileOne,  &Round::AskLoaded,   &Round::AskExecutable, &Round::Execute,   &Round::Execute,
        &Round::Execute,     &Round::AskLayouts,  &Round::AskFfi,        &Round::Transfer,  &Round::Transfer,
        &Round::DestroySome, &Round::DestroySome,
    };
    (this->*kActions[random_.Below(std::size(kActions))])();
  }

  void FromHost() {
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

  void ViewOrNew() {
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

  void Alias() {
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

  void Fulfill() {
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

  template <class Args>
  bool Buffer(PJRT_Error* (*function)(Args*)) {
    auto args = New<Args>();
    args.buffer = Any<PJRT_Buffer>(kBuffer);
    return Call(function, args);
  }
  void AskBuffer() {
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

  // Memory that copies write to, as long as they were told, until the round ends.
  char* Target(size_t size) {
    targets_.emplace_back(new char[std::max<size_t>(size, 1)]);
    return targets_.back().get();
  }

  void ToHost() {
    auto args = New<PJRT_Buffer_ToHostBuffer_Args>();
    args.src = Any<PJRT_Buffer>(kBuffer);
    args.host_layout = Layout(random_.Below(6));
    const size_t size = IsLive(kBuffer, args.src) ? Bytes(args.src) : random_.Below(100);
    if (size > kHostBytes) return;
    args.dst_size = random_.OneIn(4) ? random_.Below(size + 1) : size;
    args.dst = random_.OneIn(10) ? nullptr : Target(args.dst_size);
    if (Call(api_.PJRT_Buffer_ToHostBuffer, args)) Add(kEvent, args.event);
  }

  void CopyRaw() {
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

  void CopyOrBitcast() {
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

  void Donate() {
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

  void AskEvent() {
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

  void AskClient() {
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

  void AskDevice() {
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

  void AskTopology() {
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

  void Load() {
    const std::string options = Options(random_);
    const auto& program = random_.Pick(programs);
    auto args = New<PJRT_Executable_DeserializeAndLoad_Args>();
    args.client = Any<PJRT_Client>(kClient);
    args.serialized_executable = random_.OneIn(30) ? nullptr : program.data();
    args.serialized_executable_size = random_.OneIn(10) ? random_.Below(program.size()) : program.size();
    args.overridden_serialized_compile_options = options.data();
    args.overridden_serialized_compile_options_size = options.size();
    if (Call(api_.PJRT_Executable_DeserializeAndLoad, args)) Add(kLoaded, args.loaded_executable);
  }

  void CompileOne() {
    std::string code(1 + random_.Below(3), static_cast<char>(random_.Next()));
    const std::string options = Options(random_);
    auto program = New<PJRT_Program>();
    program.code = random_.OneIn(10) ? nullptr : code.data();
    program.code_size = code.size();
    program.format = "mlir";
    program.format_size = 4;
    if (random_.OneIn(10)) program.struct_size = random_.Below(60);
    if (random_.OneIn(3)) {
      auto args = New<PJRT_Compile_Args>();
      args.topology = Any<PJRT_TopologyDescription>(kTopology);
      args.program = random_.OneIn(10) ? nullptr : &program;
      args.compile_options = options.data();
      args.compile_options_size = options.size();
      if (Call(api_.PJRT_Compile, args)) Add(kExecutable, args.executable);
      return;
    }
    auto args = New<PJRT_Client_Compile_Args>();
    args.client = Any<PJRT_Client>(kClient);
    args.program = random_.OneIn(10) ? nullptr : &program;
    args.compile_options = options.data();
    args.compile_options_size = options.size();
    if (Call(api_.PJRT_Client_Compile, args)) Add(kLoaded, args.executable);
  }

  void AskLoaded() {
    PJRT_LoadedExecutable* const loaded = Any<PJRT_LoadedExecutable>(kLoaded);
    const auto with = [&](auto args, auto function) {
      args.executable = loaded;
      Call(function, args);
    };
    switch (random_.Below(6)) {
      case 0: {
        auto args = New<PJRT_LoadedExecutable_GetExecutable_Args>();
        args.loaded_executable = loaded;
        if (Call(api_.PJRT_LoadedExecutable_GetExecutable, args)) Add(kExecutable, args.executable);
        break;
      }
      case 1:
        with(New<PJRT_LoadedExecutable_AddressableDevices_Args>(), api_.PJRT_LoadedExecutable_AddressableDevices);
        break;
      case 2: {
        auto args = New<PJRT_LoadedExecutable_GetDeviceAssignment_Args>();
        args.executable = loaded;
        if (Call(api_.PJRT_LoadedExecutable_GetDeviceAssignment, args)) {
          for (size_t calls = 1 + random_.Below(2); calls > 0; --calls) {
            args.serialized_device_assignment_deleter(args.serialized_device_assignment);
          }
        }
        break;
      }
      case 3:
        with(New<PJRT_LoadedExecutable_Delete_Args>(), api_.PJRT_LoadedExecutable_Delete);
        break;
      case 4: {
        const std::string options = Options(random_);
        auto args = New<PJRT_Client_Load_Args>();
        args.client = Any<PJRT_Client>(kClient);
        args.executable = Any<PJRT_Executable>(kExecutable);
        args.compile_options = options.data();
        args.compile_options_size = options.size();
        if (Call(api_.PJRT_Client_Load, args)) Add(kLoaded, args.loaded_executable);
        break;
      }
      default:
        with(New<PJRT_LoadedExecutable_IsDeleted_Args>(), api_.PJRT_LoadedExecutable_IsDeleted);
    }
  }

  void AskExecutable() {
    PJRT_Executable* const executable = Any<PJRT_Executable>(kExecutable);
    const auto with = [&](auto args, auto function) {
      args.executable = executable;
      Call(function, args);
    };
    switch (random_.Below(5)) {
      case 0:
        with(New<PJRT_Executable_Name_Args>(), api_.PJRT_Executable_Name);
        with(New<PJRT_Executable_Fingerprint_Args>(), api_.PJRT_Executable_Fingerprint);
        break;
      case 1:
        with(New<PJRT_Executable_GetCompiledMemoryStats_Args>(), api_.PJRT_Executable_GetCompiledMemoryStats);
        with(New<PJRT_Executable_GetCostAnalysis_Args>(), api_.PJRT_Executable_GetCostAnalysis);
        break;
      case 2: {
        auto program = New<PJRT_Program>();
        auto args = New<PJRT_Executable_OptimizedProgram_Args>();
        args.executable = executable;
        args.program = random_.OneIn(9) ? nullptr : &program;
        if (!Call(api_.PJRT_Executable_OptimizedProgram, args) || program.code_size > kHostBytes) break;
        if (random_.OneIn(3)) program.code_size /= 2;
        program.code = Target(program.code_size);
        Call(api_.PJRT_Executable_OptimizedProgram, args);
        break;
      }
      case 3: {
        auto args = New<PJRT_Executable_Serialize_Args>();
        args.executable = executable;
        if (Call(api_.PJRT_Executable_Serialize, args)) {
          for (size_t calls = 1 + random_.Below(2); calls > 0; --calls) {
            args.serialized_executable_deleter(args.serialized_executable);
          }
        }
        break;
      }
      default:
        with(New<PJRT_Executable_OutputElementTypes_Args>(), api_.PJRT_Executable_OutputElementTypes);
        with(New<PJRT_Executable_OutputDimensions_Args>(), api_.PJRT_Executable_OutputDimensions);
        with(New<PJRT_Executable_OutputMemoryKinds_Args>(), api_.PJRT_Executable_OutputMemoryKinds);
    }
  }

  void Execute() {
    std::vector<PJRT_Buffer*> arguments(random_.Below(4));
    for (PJRT_Buffer*& argument : arguments) {
      argument = Any<PJRT_Buffer>(kBuffer);
      if (IsLive(kBuffer, argument) && !IsDefined(argument)) return;
    }
    std::array<PJRT_Buffer*, 16> outputs{};
    PJRT_Buffer* const* argument_list = random_.OneIn(20) ? nullptr : arguments.data();
    PJRT_Buffer** output_list = random_.OneIn(20) ? nullptr : outputs.data();
    auto options = New<PJRT_ExecuteOptions>();
    std::vector<int64_t> kept(random_.Below(3));
    for (int64_t& index : kept) index = static_cast<int64_t>(random_.OneIn(2) ? random_.Odd() : 0);
    options.non_donatable_input_indices = kept.data();
    options.num_non_donatable_input_indices = kept.size();
    if (random_.OneIn(20)) options.num_send_ops = random_.Odd();
    if (random_.OneIn(20)) options.struct_size = random_.Below(sizeof options);
    auto args = New<PJRT_LoadedExecutable_Execute_Args>();
    args.executable = Any<PJRT_LoadedExecutable>(kLoaded);
    args.options = random_.OneIn(20) ? nullptr : &options;
    args.argument_lists = random_.OneIn(20) ? nullptr : &argument_list;
    args.num_devices = random_.OneIn(10) ? random_.Odd() : 1;
    args.num_args = arguments.size();
    args.output_lists = random_.OneIn(20) ? nullptr : &output_list;
    PJRT_Event* done = nullptr;
    args.device_complete_events = random_.OneIn(2) ? &done : nullptr;
    if (random_.OneIn(6)) args.execute_device = Any<PJRT_Device>(kDevice);
    if (!Call(api_.PJRT_LoadedExecutable_Execute, args)) return;
    for (PJRT_Buffer* output : outputs) Add(kBuffer, output);
    Add(kEvent, done);
  }

  void AskLayouts() {
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

  void AskFfi() {
    if (random_.OneIn(2)) {
      auto args = New<PJRT_ExecuteContext_Create_Args>();
      if (Call(api_.PJRT_ExecuteContext_Create, args)) Add(kContext, args.context);
      return;
    }
    auto args = New<PJRT_FFI_UserData_Add_Args>();
    args.context = Any<PJRT_ExecuteContext>(kContext);
    args.user_data.type_id = static_cast<int64_t>(random_.Odd());
    Call(ffi_.user_data_add, args);
  }

  void Transfer() {
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
        if (Call(api_.PJRT_AsyncHostToDeviceTransferManager_TransferData, args))
          Add(kEvent, args.done_with_h2d_transfer);
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

  void DestroySome() { DestroyKind(static_cast<Kind>(random_.Below(kKinds)), nullptr); }

  // Destroys `handle`, or any if it is null.
  void DestroyKind(Kind kind, void* handle) {
    const auto pick = [&]<class T>(T*) { return handle != nullptr ? static_cast<T*>(handle) : Any<T>(kind); };
    switch (kind) {
      case kClient:
        if (handle != nullptr)
          DestroyOne(api_.PJRT_Client_Destroy, &PJRT_Client_Destroy_Args::client, kind,
                     pick(static_cast<PJRT_Client*>(nullptr)));
        break;
      case kTopology:
        DestroyOne(api_.PJRT_TopologyDescription_Destroy, &PJRT_TopologyDescription_Destroy_Args::topology, kind,
                   pick(static_cast<PJRT_TopologyDescription*>(nullptr)));
        break;
      case kBuffer:
        DestroyOne(api_.PJRT_Buffer_Destroy, &PJRT_Buffer_Destroy_Args::buffer, kind,
                   pick(static_cast<PJRT_Buffer*>(nullptr)));
        break;
      case kEvent:
        DestroyOne(api_.PJRT_Event_Destroy, &PJRT_Event_Destroy_Args::event, kind,
                   pick(static_cast<PJRT_Event*>(nullptr)));
        break;
      case kExecutable:
        DestroyOne(api_.PJRT_Executable_Destroy, &PJRT_Executable_Destroy_Args::executable, kind,
                   pick(static_cast<PJRT_Executable*>(nullptr)));
        break;
      case kLoaded:
        DestroyOne(api_.PJRT_LoadedExecutable_Destroy, &PJRT_LoadedExecutable_Destroy_Args::executable, kind,
                   pick(static_cast<PJRT_LoadedExecutable*>(nullptr)));
        break;
      case kContext:
        DestroyOne(api_.PJRT_ExecuteContext_Destroy, &PJRT_ExecuteContext_Destroy_Args::context, kind,
                   pick(static_cast<PJRT_ExecuteContext*>(nullptr)));
        break;
      case kLayout:
        DestroyOne(layouts_.PJRT_Layouts_MemoryLayout_Destroy, &PJRT_Layouts_MemoryLayout_Destroy_Args::layout, kind,
                   pick(static_cast<PJRT_Layouts_MemoryLayout*>(nullptr)));
        break;
      case kManager:
        DestroyOne(api_.PJRT_AsyncHostToDeviceTransferManager_Destroy,
                   &PJRT_AsyncHostToDeviceTransferManager_Destroy_Args::transfer_manager, kind,
                   pick(static_cast<PJRT_AsyncHostToDeviceTransferManager*>(nullptr)));
        break;
      case kDevice:
      case kMemory:
      case kDescription:
      case kKinds:
        break;
    }
  }

  void Clean() {
    for (auto* callback : fulfill_) {
      auto args = New<PJRT_Client_FulfillAliasBuffer_Args>();
      args.client = static_cast<PJRT_Client*>(live_[kClient][0]);
      args.status_code = PJRT_Error_Code_CANCELLED;
      args.fulfill_alias_buffer_cb = callback;
      if (!Good(api_.PJRT_Client_FulfillAliasBuffer, args)) std::abort();
    }
    std::erase(live_[kTopology], of_client_);
    // In any order; a client may go before what it made.
    std::vector<std::pair<Kind, void*>> left;
    for (const Kind kind : {kManager, kClient, kTopology, kBuffer, kEvent, kExecutable, kLoaded, kContext, kLayout}) {
      for (void* handle : live_[kind]) left.emplace_back(kind, handle);
    }
    std::shuffle(left.begin(), left.end(), std::mt19937_64(random_.Next()));
    for (const auto& [kind, handle] : left) {
      for (int tries = 0; IsLive(kind, handle); ++tries) {  // a try may have a bad struct_size
        if (tries == 100) std::abort();
        DestroyKind(kind, handle);
      }
    }
  }

  const PJRT_Api& api_;
  const PJRT_Layouts_Extension& layouts_;
  const PJRT_FFI_Extension& ffi_;
  Random random_;
  uint64_t& errors_;
  std::array<std::vector<void*>, kKinds> live_, dead_;
  std::vector<PJRT_FulfillAliasBufferCallback*> fulfill_;
  const void* of_client_ = nullptr;
  std::vector<std::unique_ptr<char[]>> targets_;
  std::vector<int64_t> order_;
  PJRT_Buffer_MemoryLayout layout_;
};

void ReadPrograms(const char* path) {
  const std::vector<uint8_t> file = ReadAll(path);
  const uint8_t* at = file.data();
  const auto number = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  };
  for (uint32_t left = number(uint32_t{}); left > 0; --left) {
    const auto size = number(uint64_t{});
    programs.emplace_back(at, at + size);
    at += size;
    at += size_t{5} * number(uint32_t{});
  }
}

}  // namespace
}  // namespace pjrt_metal::attack

int main(int argc, char** argv) {
  using namespace pjrt_metal::attack;
  if (argc < 4) return 2;
  Install();
  ReadPrograms(argv[1]);
  for (size_t i = 0; i < host_memory.size(); ++i) host_memory[i] = static_cast<char>(i);
  const auto* extension = reinterpret_cast<const pjrt_metal::PrivateExtension*>(
      Extension(*GetPjrtApi(), pjrt_metal::kPrivateExtensionType));
  extension->set_compiler(&Compile);
  const uint64_t count = std::strtoull(argv[2], nullptr, 10), seed = std::strtoull(argv[3], nullptr, 10);
  uint64_t errors = 0;
  const uint64_t first = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0;
  for (uint64_t i = first; i < (argc > 4 ? first + 1 : count); ++i) {
    Begin(i);
    Round(seed, i, errors).Run();
  }
  alarm(0);
  std::printf("api: %llu rounds of %d actions, %llu errors\n", static_cast<unsigned long long>(count), kCalls,
              static_cast<unsigned long long>(errors));
  return 0;
}
