// Compiles only if csrc/runtime/xla_ffi.h describes the ABI of jaxlib's headers; run by test_ffi_abi.py.
#include "csrc/runtime/xla_ffi.h"
#include "xla/ffi/api/c_api.h"

namespace ours = pjrt_metal::xla_ffi;

#define SIZE(a, b) static_assert(sizeof(ours::a) == sizeof(b), #a)
#define FIELD(a, x, b, y) \
  static_assert(offsetof(ours::a, x) == offsetof(b, y) && sizeof(ours::a::x) == sizeof(b::y), #a "::" #x)
#if XLA_FFI_API_MINOR >= 5
#define NEWER_NAME(older, newer) newer
#else
#define NEWER_NAME(older, newer) older
#endif

static_assert(XLA_FFI_API_MAJOR == ours::kMajor);
static_assert(XLA_FFI_API_MINOR <= ours::kMinor);
static_assert(XLA_FFI_Extension_Metadata == ours::kMetadataExtension);
static_assert(XLA_FFI_ArgType_BUFFER == ours::kBuffer && XLA_FFI_RetType_BUFFER == ours::kBuffer);
static_assert(XLA_FFI_AttrType_ARRAY == int{ours::kArray} && XLA_FFI_AttrType_DICTIONARY == int{ours::kDictionary});
static_assert(XLA_FFI_AttrType_SCALAR == int{ours::kScalar} && XLA_FFI_AttrType_STRING == int{ours::kString});
static_assert(XLA_FFI_ExecutionStage_INSTANTIATE == int{ours::kInstantiate});
static_assert(XLA_FFI_ExecutionStage_PREPARE == int{ours::kPrepare});
static_assert(XLA_FFI_ExecutionStage_INITIALIZE == int{ours::kInitialize});
static_assert(XLA_FFI_ExecutionStage_EXECUTE == int{ours::kExecute});

SIZE(Extension, NEWER_NAME(XLA_FFI_Extension_Base, XLA_FFI_InternalExtension));
FIELD(Extension, next, NEWER_NAME(XLA_FFI_Extension_Base, XLA_FFI_InternalExtension), next);
SIZE(Version, XLA_FFI_Api_Version);
FIELD(Version, minor, XLA_FFI_Api_Version, minor_version);
SIZE(Buffer, XLA_FFI_Buffer);
FIELD(Buffer, dtype, XLA_FFI_Buffer, dtype);
FIELD(Buffer, data, XLA_FFI_Buffer, data);
FIELD(Buffer, rank, XLA_FFI_Buffer, rank);
FIELD(Buffer, dims, XLA_FFI_Buffer, dims);
SIZE(Text, XLA_FFI_ByteSpan);
FIELD(Text, size, XLA_FFI_ByteSpan, len);
SIZE(Scalar, XLA_FFI_Scalar);
FIELD(Scalar, value, XLA_FFI_Scalar, value);
SIZE(Array, XLA_FFI_Array);
FIELD(Array, count, XLA_FFI_Array, size);
FIELD(Array, data, XLA_FFI_Array, data);
SIZE(TypeId, XLA_FFI_TypeId);
SIZE(TypeInfo, XLA_FFI_TypeInfo);
FIELD(TypeInfo, deleter, XLA_FFI_TypeInfo, deleter);
SIZE(Arguments, XLA_FFI_Args);
SIZE(Arguments, XLA_FFI_Rets);
FIELD(Arguments, count, XLA_FFI_Args, size);
FIELD(Arguments, kinds, XLA_FFI_Args, types);
FIELD(Arguments, values, XLA_FFI_Args, args);
SIZE(Attributes, XLA_FFI_Attrs);
FIELD(Attributes, kinds, XLA_FFI_Attrs, types);
FIELD(Attributes, names, XLA_FFI_Attrs, names);
FIELD(Attributes, values, XLA_FFI_Attrs, attrs);
SIZE(CallFrame, XLA_FFI_CallFrame);
FIELD(CallFrame, api, XLA_FFI_CallFrame, api);
FIELD(CallFrame, context, XLA_FFI_CallFrame, ctx);
FIELD(CallFrame, stage, XLA_FFI_CallFrame, stage);
FIELD(CallFrame, operands, XLA_FFI_CallFrame, args);
FIELD(CallFrame, results, XLA_FFI_CallFrame, rets);
FIELD(CallFrame, attributes, XLA_FFI_CallFrame, attrs);
FIELD(CallFrame, future, XLA_FFI_CallFrame, future);
static_assert(offsetof(ours::CallFrame, attributes) + sizeof(ours::Attributes) == XLA_FFI_CallFrame_STRUCT_SIZE);
SIZE(Metadata, XLA_FFI_Metadata);
FIELD(Metadata, version, XLA_FFI_Metadata, api_version);
FIELD(Metadata, traits, XLA_FFI_Metadata, traits);
FIELD(Metadata, state_type, XLA_FFI_Metadata, state_type_id);
SIZE(MetadataExtension, XLA_FFI_Metadata_Extension);
FIELD(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);

SIZE(ErrorCreateArgs, XLA_FFI_Error_Create_Args);
FIELD(ErrorCreateArgs, message, XLA_FFI_Error_Create_Args, message);
FIELD(ErrorCreateArgs, code, XLA_FFI_Error_Create_Args, errc);
FIELD(ErrorDetailsArgs, message, NEWER_NAME(XLA_FFI_Error_GetMessage_Args, XLA_FFI_Error_GetDetails_Args), message);
SIZE(ErrorDestroyArgs, XLA_FFI_Error_Destroy_Args);
SIZE(FutureCreateArgs, XLA_FFI_Future_Create_Args);
FIELD(FutureArgs, future, XLA_FFI_Future_SetAvailable_Args, future);
SIZE(FutureArgs, XLA_FFI_Future_SetError_Args);
FIELD(FutureArgs, error, XLA_FFI_Future_SetError_Args, error);
SIZE(TypeRegisterArgs, XLA_FFI_Type_Register_Args);
FIELD(TypeRegisterArgs, type, XLA_FFI_Type_Register_Args, type_id);
FIELD(TypeRegisterArgs, info, XLA_FFI_Type_Register_Args, type_info);
SIZE(ContextGetArgs, NEWER_NAME(XLA_FFI_ExecutionContext_Get_Args, XLA_FFI_InvokeContext_Get_Args));
FIELD(ContextGetArgs, data, NEWER_NAME(XLA_FFI_ExecutionContext_Get_Args, XLA_FFI_InvokeContext_Get_Args), data);
SIZE(StateArgs, XLA_FFI_State_Set_Args);
SIZE(StateArgs, XLA_FFI_State_Get_Args);
FIELD(StateArgs, stage, XLA_FFI_State_Set_Args, stage);
FIELD(StateArgs, type, XLA_FFI_State_Get_Args, type_id);
FIELD(StateArgs, state, XLA_FFI_State_Get_Args, state);
SIZE(StreamGetArgs, XLA_FFI_Stream_Get_Args);
SIZE(MemoryArgs, XLA_FFI_DeviceMemory_Allocate_Args);
FIELD(MemoryArgs, size, XLA_FFI_DeviceMemory_Allocate_Args, size);
FIELD(MemoryArgs, alignment, XLA_FFI_DeviceMemory_Allocate_Args, alignment);
FIELD(MemoryArgs, data, XLA_FFI_DeviceMemory_Allocate_Args, data);
SIZE(MemoryFreeArgs, XLA_FFI_DeviceMemory_Free_Args);
FIELD(MemoryFreeArgs, data, XLA_FFI_DeviceMemory_Free_Args, data);
SIZE(ScheduleArgs, XLA_FFI_ThreadPool_Schedule_Args);
FIELD(ScheduleArgs, task, XLA_FFI_ThreadPool_Schedule_Args, task);
FIELD(ScheduleArgs, data, XLA_FFI_ThreadPool_Schedule_Args, data);
SIZE(NumThreadsArgs, XLA_FFI_ThreadPool_NumThreads_Args);
FIELD(NumThreadsArgs, num_threads, XLA_FFI_ThreadPool_NumThreads_Args, num_threads);
SIZE(RunIdArgs, XLA_FFI_RunId_Get_Args);
FIELD(RunIdArgs, run_id, XLA_FFI_RunId_Get_Args, run_id);
SIZE(DeviceOrdinalArgs, XLA_FFI_DeviceOrdinal_Get_Args);
FIELD(DeviceOrdinalArgs, ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);

FIELD(Api, version, XLA_FFI_Api, api_version);
FIELD(Api, internal, XLA_FFI_Api, internal_api);
FIELD(Api, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);
FIELD(Api, error_details, XLA_FFI_Api, NEWER_NAME(XLA_FFI_Error_GetMessage, XLA_FFI_Error_GetDetails));
FIELD(Api, error_destroy, XLA_FFI_Api, XLA_FFI_Error_Destroy);
FIELD(Api, handler_register, XLA_FFI_Api, XLA_FFI_Handler_Register);
FIELD(Api, stream_get, XLA_FFI_Api, XLA_FFI_Stream_Get);
FIELD(Api, type_register, XLA_FFI_Api, XLA_FFI_Type_Register);
FIELD(Api, context_get, XLA_FFI_Api, NEWER_NAME(XLA_FFI_ExecutionContext_Get, XLA_FFI_InvokeContext_Get));
FIELD(Api, state_set, XLA_FFI_Api, XLA_FFI_State_Set);
FIELD(Api, state_get, XLA_FFI_Api, XLA_FFI_State_Get);
FIELD(Api, memory_allocate, XLA_FFI_Api, XLA_FFI_DeviceMemory_Allocate);
FIELD(Api, memory_free, XLA_FFI_Api, XLA_FFI_DeviceMemory_Free);
FIELD(Api, schedule, XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule);
FIELD(Api, num_threads, XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads);
FIELD(Api, future_create, XLA_FFI_Api, XLA_FFI_Future_Create);
FIELD(Api, future_set_available, XLA_FFI_Api, XLA_FFI_Future_SetAvailable);
FIELD(Api, future_set_error, XLA_FFI_Api, XLA_FFI_Future_SetError);
FIELD(Api, run_id, XLA_FFI_Api, XLA_FFI_RunId_Get);
FIELD(Api, device_ordinal, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);

#if XLA_FFI_API_MINOR >= 5
SIZE(ErrorDetailsArgs, XLA_FFI_Error_GetDetails_Args);
FIELD(ErrorDetailsArgs, code, XLA_FFI_Error_GetDetails_Args, errc);
SIZE(FindExtensionArgs, XLA_FFI_InvokeContext_FindExtension_Args);
FIELD(FindExtensionArgs, found, XLA_FFI_InvokeContext_FindExtension_Args, extension);
SIZE(CustomOptionsArgs, XLA_FFI_CustomOptions_Get_Args);
FIELD(CustomOptionsArgs, options, XLA_FFI_CustomOptions_Get_Args, attrs);
FIELD(Api, find_extension, XLA_FFI_Api, XLA_FFI_InvokeContext_FindExtension);
FIELD(Api, custom_options, XLA_FFI_Api, XLA_FFI_CustomOptions_Get);
static_assert(sizeof(ours::Api) == XLA_FFI_Api_STRUCT_SIZE);
#endif

#ifdef PLANTED
FIELD(Buffer, data, XLA_FFI_Buffer, rank);
#endif
