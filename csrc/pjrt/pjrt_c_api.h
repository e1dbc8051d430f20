// The PJRT C API, version 0.114, LP64.
// Made by generate_header.py from pjrt_abi.json: do not edit.
//
// Every *_Args struct starts with struct_size: the bytes that the caller's version of it has, which
// may be fewer or more than here. StructSize<T>() is this version's: the end of the last field,
// without padding.
// clang-format off
#pragma once

#include <cstddef>
#include <cstdint>

#define PJRT_API_MAJOR 0
#define PJRT_API_MINOR 114

#define PJRT_CHECK_FIELD(type, field, offset, size) \
  static_assert(offsetof(type, field) == offset && sizeof(type::field) == size)

extern "C" {

typedef struct PJRT_AsyncHostToDeviceTransferManager PJRT_AsyncHostToDeviceTransferManager;
typedef struct PJRT_AsyncTrackingEvent PJRT_AsyncTrackingEvent;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_CopyToDeviceStream PJRT_CopyToDeviceStream;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_DeviceAssignmentSerialized PJRT_DeviceAssignmentSerialized;
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_Device_Attributes PJRT_Device_Attributes;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_Executable PJRT_Executable;
typedef struct PJRT_ExecuteContext PJRT_ExecuteContext;
typedef struct PJRT_FulfillAliasBufferCallback PJRT_FulfillAliasBufferCallback;
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable;
typedef struct PJRT_MultiSlice_Config PJRT_MultiSlice_Config;
typedef struct PJRT_PhaseCompiler PJRT_PhaseCompiler;
typedef struct PJRT_SerializedCompileOptions PJRT_SerializedCompileOptions;
typedef struct PJRT_SerializedExecutable PJRT_SerializedExecutable;
typedef struct PJRT_SerializedTopology PJRT_SerializedTopology;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;
typedef struct PJRT_Extension_Base PJRT_Extension_Base;
typedef struct PJRT_Api_Version PJRT_Api_Version;
typedef struct PJRT_Error_Destroy_Args PJRT_Error_Destroy_Args;
typedef struct PJRT_Error_Message_Args PJRT_Error_Message_Args;
typedef struct PJRT_Error_FunctionTable PJRT_Error_FunctionTable;
typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Error_GetCode_Args PJRT_Error_GetCode_Args;
typedef struct PJRT_Error_ForEachPayload_Args PJRT_Error_ForEachPayload_Args;
typedef struct PJRT_NamedValue PJRT_NamedValue;
typedef struct PJRT_Plugin_Initialize_Args PJRT_Plugin_Initialize_Args;
typedef struct PJRT_Plugin_Attributes_Args PJRT_Plugin_Attributes_Args;
typedef struct PJRT_Event_Destroy_Args PJRT_Event_Destroy_Args;
typedef struct PJRT_Event_IsReady_Args PJRT_Event_IsReady_Args;
typedef struct PJRT_Event_Error_Args PJRT_Event_Error_Args;
typedef struct PJRT_Event_Await_Args PJRT_Event_Await_Args;
typedef struct PJRT_Event_OnReady_Args PJRT_Event_OnReady_Args;
typedef struct PJRT_Event_Create_Args PJRT_Event_Create_Args;
typedef struct PJRT_Event_Set_Args PJRT_Event_Set_Args;
typedef struct PJRT_Memory_FunctionTable PJRT_Memory_FunctionTable;
typedef struct PJRT_Memory PJRT_Memory;
typedef struct PJRT_KeyValueGetCallback_Args PJRT_KeyValueGetCallback_Args;
typedef struct PJRT_KeyValueTryGetCallback_Args PJRT_KeyValueTryGetCallback_Args;
typedef struct PJRT_KeyValuePutCallback_Args PJRT_KeyValuePutCallback_Args;
typedef struct PJRT_Client_Create_Args PJRT_Client_Create_Args;
typedef struct PJRT_Client_Destroy_Args PJRT_Client_Destroy_Args;
typedef struct PJRT_Client_PlatformName_Args PJRT_Client_PlatformName_Args;
typedef struct PJRT_Client_ProcessIndex_Args PJRT_Client_ProcessIndex_Args;
typedef struct PJRT_Client_PlatformVersion_Args PJRT_Client_PlatformVersion_Args;
typedef struct PJRT_Client_TopologyDescription_Args PJRT_Client_TopologyDescription_Args;
typedef struct PJRT_Client_Devices_Args PJRT_Client_Devices_Args;
typedef struct PJRT_Client_AddressableDevices_Args PJRT_Client_AddressableDevices_Args;
typedef struct PJRT_Client_LookupDevice_Args PJRT_Client_LookupDevice_Args;
typedef struct PJRT_Client_LookupAddressableDevice_Args PJRT_Client_LookupAddressableDevice_Args;
typedef struct PJRT_ProcessInfo PJRT_ProcessInfo;
typedef struct PJRT_Client_UpdateGlobalProcessInfo_Args PJRT_Client_UpdateGlobalProcessInfo_Args;
typedef struct PJRT_Client_AddressableMemories_Args PJRT_Client_AddressableMemories_Args;
typedef struct PJRT_Program PJRT_Program;
typedef struct PJRT_Client_Compile_Args PJRT_Client_Compile_Args;
typedef struct PJRT_Client_Load_Args PJRT_Client_Load_Args;
typedef struct PJRT_Client_DefaultDeviceAssignment_Args PJRT_Client_DefaultDeviceAssignment_Args;
typedef struct PJRT_Client_DmaMap_Args PJRT_Client_DmaMap_Args;
typedef struct PJRT_Client_DmaUnmap_Args PJRT_Client_DmaUnmap_Args;
typedef struct PJRT_AsyncHostToDeviceTransferManager_Destroy_Args PJRT_AsyncHostToDeviceTransferManager_Destroy_Args;
typedef struct PJRT_AsyncHostToDeviceTransferManager_TransferData_Args PJRT_AsyncHostToDeviceTransferManager_TransferData_Args;
typedef struct PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args;
typedef struct PJRT_AsyncHostToDeviceTransferManager_Device_Args PJRT_AsyncHostToDeviceTransferManager_Device_Args;
typedef struct PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args;
typedef struct PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args;
typedef struct PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args;
typedef struct PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args;
typedef struct PJRT_Buffer_MemoryLayout_Tiled PJRT_Buffer_MemoryLayout_Tiled;
typedef struct PJRT_Buffer_MemoryLayout_Strides PJRT_Buffer_MemoryLayout_Strides;
typedef struct PJRT_Buffer_MemoryLayout PJRT_Buffer_MemoryLayout;
typedef struct PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args;
typedef struct PJRT_Client_CreateUninitializedBuffer_Args PJRT_Client_CreateUninitializedBuffer_Args;
typedef struct PJRT_Client_CreateErrorBuffer_Args PJRT_Client_CreateErrorBuffer_Args;
typedef struct PJRT_Client_CreateAliasBuffer_Args PJRT_Client_CreateAliasBuffer_Args;
typedef struct PJRT_Client_FulfillAliasBuffer_Args PJRT_Client_FulfillAliasBuffer_Args;
typedef struct PJRT_Client_BufferFromHostBuffer_Args PJRT_Client_BufferFromHostBuffer_Args;
typedef struct PJRT_Client_CreateViewOfDeviceBuffer_Args PJRT_Client_CreateViewOfDeviceBuffer_Args;
typedef struct PJRT_ShapeSpec PJRT_ShapeSpec;
typedef struct PJRT_Client_CreateBuffersForAsyncHostToDevice_Args PJRT_Client_CreateBuffersForAsyncHostToDevice_Args;
typedef struct PJRT_DeviceDescription_Id_Args PJRT_DeviceDescription_Id_Args;
typedef struct PJRT_DeviceDescription_ProcessIndex_Args PJRT_DeviceDescription_ProcessIndex_Args;
typedef struct PJRT_DeviceDescription_Attributes_Args PJRT_DeviceDescription_Attributes_Args;
typedef struct PJRT_DeviceDescription_Kind_Args PJRT_DeviceDescription_Kind_Args;
typedef struct PJRT_DeviceDescription_DebugString_Args PJRT_DeviceDescription_DebugString_Args;
typedef struct PJRT_DeviceDescription_ToString_Args PJRT_DeviceDescription_ToString_Args;
typedef struct PJRT_Device_GetDescription_Args PJRT_Device_GetDescription_Args;
typedef struct PJRT_Device_IsAddressable_Args PJRT_Device_IsAddressable_Args;
typedef struct PJRT_Device_LocalHardwareId_Args PJRT_Device_LocalHardwareId_Args;
typedef struct PJRT_Device_AddressableMemories_Args PJRT_Device_AddressableMemories_Args;
typedef struct PJRT_Device_DefaultMemory_Args PJRT_Device_DefaultMemory_Args;
typedef struct PJRT_Device_MemoryStats_Args PJRT_Device_MemoryStats_Args;
typedef struct PJRT_Device_ClearMemoryStats_Args PJRT_Device_ClearMemoryStats_Args;
typedef struct PJRT_Device_PoisonExecution_Args PJRT_Device_PoisonExecution_Args;
typedef struct PJRT_Device_GetAttributes_Args PJRT_Device_GetAttributes_Args;
typedef struct PJRT_Device_CreateAsyncTrackingEvent_Args PJRT_Device_CreateAsyncTrackingEvent_Args;
typedef struct PJRT_AsyncTrackingEvent_Destroy_Args PJRT_AsyncTrackingEvent_Destroy_Args;
typedef struct PJRT_Memory_Id_Args PJRT_Memory_Id_Args;
typedef struct PJRT_Memory_Kind_Args PJRT_Memory_Kind_Args;
typedef struct PJRT_Memory_Kind_Id_Args PJRT_Memory_Kind_Id_Args;
typedef struct PJRT_Memory_DebugString_Args PJRT_Memory_DebugString_Args;
typedef struct PJRT_Memory_ToString_Args PJRT_Memory_ToString_Args;
typedef struct PJRT_Memory_AddressableByDevices_Args PJRT_Memory_AddressableByDevices_Args;
typedef struct PJRT_ExecuteContext_Create_Args PJRT_ExecuteContext_Create_Args;
typedef struct PJRT_ExecuteContext_Destroy_Args PJRT_ExecuteContext_Destroy_Args;
typedef struct PJRT_Executable_Destroy_Args PJRT_Executable_Destroy_Args;
typedef struct PJRT_LoadedExecutable_Destroy_Args PJRT_LoadedExecutable_Destroy_Args;
typedef struct PJRT_LoadedExecutable_GetExecutable_Args PJRT_LoadedExecutable_GetExecutable_Args;
typedef struct PJRT_LoadedExecutable_GetDeviceAssignment_Args PJRT_LoadedExecutable_GetDeviceAssignment_Args;
typedef struct PJRT_Executable_Name_Args PJRT_Executable_Name_Args;
typedef struct PJRT_Executable_NumReplicas_Args PJRT_Executable_NumReplicas_Args;
typedef struct PJRT_Executable_NumPartitions_Args PJRT_Executable_NumPartitions_Args;
typedef struct PJRT_LogicalDeviceIds PJRT_LogicalDeviceIds;
typedef struct PJRT_LoadedExecutable_AddressableDevices_Args PJRT_LoadedExecutable_AddressableDevices_Args;
typedef struct PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args;
typedef struct PJRT_Executable_OptimizedProgram_Args PJRT_Executable_OptimizedProgram_Args;
typedef struct PJRT_LoadedExecutable_Delete_Args PJRT_LoadedExecutable_Delete_Args;
typedef struct PJRT_LoadedExecutable_IsDeleted_Args PJRT_LoadedExecutable_IsDeleted_Args;
typedef struct PJRT_Chunk PJRT_Chunk;
typedef struct PJRT_SendCallbackInfo PJRT_SendCallbackInfo;
typedef struct PJRT_RecvCallbackInfo PJRT_RecvCallbackInfo;
typedef struct PJRT_HloOutputCallbackInfo PJRT_HloOutputCallbackInfo;
typedef struct PJRT_ExecuteOptions PJRT_ExecuteOptions;
typedef struct PJRT_LoadedExecutable_Execute_Args PJRT_LoadedExecutable_Execute_Args;
typedef struct PJRT_Executable_NumOutputs_Args PJRT_Executable_NumOutputs_Args;
typedef struct PJRT_Executable_SizeOfGeneratedCodeInBytes_Args PJRT_Executable_SizeOfGeneratedCodeInBytes_Args;
typedef struct PJRT_Executable_Fingerprint_Args PJRT_Executable_Fingerprint_Args;
typedef struct PJRT_Executable_GetCostAnalysis_Args PJRT_Executable_GetCostAnalysis_Args;
typedef struct PJRT_Executable_GetCompiledMemoryStats_Args PJRT_Executable_GetCompiledMemoryStats_Args;
typedef struct PJRT_Executable_OutputElementTypes_Args PJRT_Executable_OutputElementTypes_Args;
typedef struct PJRT_Executable_OutputDimensions_Args PJRT_Executable_OutputDimensions_Args;
typedef struct PJRT_Executable_ParameterMemoryKinds_Args PJRT_Executable_ParameterMemoryKinds_Args;
typedef struct PJRT_Executable_OutputMemoryKinds_Args PJRT_Executable_OutputMemoryKinds_Args;
typedef struct PJRT_Executable_Serialize_Args PJRT_Executable_Serialize_Args;
typedef struct PJRT_Executable_GetCompileOptions_Args PJRT_Executable_GetCompileOptions_Args;
typedef struct PJRT_LoadOptions PJRT_LoadOptions;
typedef struct PJRT_Executable_DeserializeAndLoad_Args PJRT_Executable_DeserializeAndLoad_Args;
typedef struct PJRT_LoadedExecutable_Fingerprint_Args PJRT_LoadedExecutable_Fingerprint_Args;
typedef struct PJRT_Buffer_Destroy_Args PJRT_Buffer_Destroy_Args;
typedef struct PJRT_Buffer_ElementType_Args PJRT_Buffer_ElementType_Args;
typedef struct PJRT_Buffer_Dimensions_Args PJRT_Buffer_Dimensions_Args;
typedef struct PJRT_Buffer_UnpaddedDimensions_Args PJRT_Buffer_UnpaddedDimensions_Args;
typedef struct PJRT_Buffer_DynamicDimensionIndices_Args PJRT_Buffer_DynamicDimensionIndices_Args;
typedef struct PJRT_Buffer_GetMemoryLayout_Args PJRT_Buffer_GetMemoryLayout_Args;
typedef struct PJRT_Buffer_ToHostBuffer_Args PJRT_Buffer_ToHostBuffer_Args;
typedef struct PJRT_Buffer_OnDeviceSizeInBytes_Args PJRT_Buffer_OnDeviceSizeInBytes_Args;
typedef struct PJRT_Buffer_Delete_Args PJRT_Buffer_Delete_Args;
typedef struct PJRT_Buffer_IsDeleted_Args PJRT_Buffer_IsDeleted_Args;
typedef struct PJRT_Buffer_CopyRawToHost_Args PJRT_Buffer_CopyRawToHost_Args;
typedef struct PJRT_Buffer_CopyRawToHostFuture_Callback_Args PJRT_Buffer_CopyRawToHostFuture_Callback_Args;
typedef struct PJRT_Buffer_CopyRawToHostFuture_Args PJRT_Buffer_CopyRawToHostFuture_Args;
typedef struct PJRT_Buffer_CopyToDevice_Args PJRT_Buffer_CopyToDevice_Args;
typedef struct PJRT_Buffer_CopyToMemory_Args PJRT_Buffer_CopyToMemory_Args;
typedef struct PJRT_Buffer_Bitcast_Args PJRT_Buffer_Bitcast_Args;
typedef struct PJRT_Buffer_IsOnCpu_Args PJRT_Buffer_IsOnCpu_Args;
typedef struct PJRT_Buffer_Device_Args PJRT_Buffer_Device_Args;
typedef struct PJRT_Buffer_Memory_Args PJRT_Buffer_Memory_Args;
typedef struct PJRT_Buffer_ReadyEvent_Args PJRT_Buffer_ReadyEvent_Args;
typedef struct PJRT_Buffer_UnsafePointer_Args PJRT_Buffer_UnsafePointer_Args;
typedef struct PJRT_Buffer_IncreaseExternalReferenceCount_Args PJRT_Buffer_IncreaseExternalReferenceCount_Args;
typedef struct PJRT_Buffer_DecreaseExternalReferenceCount_Args PJRT_Buffer_DecreaseExternalReferenceCount_Args;
typedef struct PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args;
typedef struct PJRT_Buffer_DonateWithControlDependency_Callback_Args PJRT_Buffer_DonateWithControlDependency_Callback_Args;
typedef struct PJRT_Buffer_DonateWithControlDependency_Args PJRT_Buffer_DonateWithControlDependency_Args;
typedef struct PJRT_CopyToDeviceStream_Destroy_Args PJRT_CopyToDeviceStream_Destroy_Args;
typedef struct PJRT_CopyToDeviceStream_AddChunk_Args PJRT_CopyToDeviceStream_AddChunk_Args;
typedef struct PJRT_CopyToDeviceStream_TotalBytes_Args PJRT_CopyToDeviceStream_TotalBytes_Args;
typedef struct PJRT_CopyToDeviceStream_GranuleSize_Args PJRT_CopyToDeviceStream_GranuleSize_Args;
typedef struct PJRT_CopyToDeviceStream_CurrentBytes_Args PJRT_CopyToDeviceStream_CurrentBytes_Args;
typedef struct PJRT_TopologyDescription_Create_Args PJRT_TopologyDescription_Create_Args;
typedef struct PJRT_TopologyDescription_Destroy_Args PJRT_TopologyDescription_Destroy_Args;
typedef struct PJRT_TopologyDescription_PlatformVersion_Args PJRT_TopologyDescription_PlatformVersion_Args;
typedef struct PJRT_TopologyDescription_PlatformName_Args PJRT_TopologyDescription_PlatformName_Args;
typedef struct PJRT_TopologyDescription_GetDeviceDescriptions_Args PJRT_TopologyDescription_GetDeviceDescriptions_Args;
typedef struct PJRT_TopologyDescription_Serialize_Args PJRT_TopologyDescription_Serialize_Args;
typedef struct PJRT_TopologyDescription_Deserialize_Args PJRT_TopologyDescription_Deserialize_Args;
typedef struct PJRT_TopologyDescription_Attributes_Args PJRT_TopologyDescription_Attributes_Args;
typedef struct PJRT_TopologyDescription_Fingerprint_Args PJRT_TopologyDescription_Fingerprint_Args;
typedef struct PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args;
typedef struct PJRT_TopologyDescription_GetMemorySpaceKindIds_Args PJRT_TopologyDescription_GetMemorySpaceKindIds_Args;
typedef struct PJRT_Compile_Args PJRT_Compile_Args;
typedef struct PJRT_Api PJRT_Api;
typedef struct PJRT_Layouts_MemoryLayout PJRT_Layouts_MemoryLayout;
typedef struct PJRT_Layouts_SerializedLayout PJRT_Layouts_SerializedLayout;
typedef struct PJRT_Layouts_MemoryLayout_Destroy_Args PJRT_Layouts_MemoryLayout_Destroy_Args;
typedef struct PJRT_Layouts_MemoryLayout_Serialize_Args PJRT_Layouts_MemoryLayout_Serialize_Args;
typedef struct PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args;
typedef struct PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args;
typedef struct PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args;
typedef struct PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args;
typedef struct PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args;
typedef struct PJRT_Layouts_Extension PJRT_Layouts_Extension;
typedef struct PJRT_FFI_Type_Info PJRT_FFI_Type_Info;
typedef struct PJRT_FFI_Type_Register_Args PJRT_FFI_Type_Register_Args;
typedef struct PJRT_FFI_UserData PJRT_FFI_UserData;
typedef struct PJRT_FFI_UserData_Add_Args PJRT_FFI_UserData_Add_Args;
typedef struct PJRT_FFI_Register_Handler_Args PJRT_FFI_Register_Handler_Args;
typedef struct PJRT_FFI_Extension PJRT_FFI_Extension;
typedef struct PJRT_MemoryDescription PJRT_MemoryDescription;
typedef struct PJRT_DeviceDescription_MemoryDescriptions_Args PJRT_DeviceDescription_MemoryDescriptions_Args;
typedef struct PJRT_MemoryDescription_Kind_Args PJRT_MemoryDescription_Kind_Args;
typedef struct PJRT_MemoryDescriptions_Extension PJRT_MemoryDescriptions_Extension;
typedef enum {
  PJRT_Extension_Type_Gpu_Custom_Call = 0,
  PJRT_Extension_Type_Profiler = 1,
  PJRT_Extension_Type_Custom_Partitioner = 2,
  PJRT_Extension_Type_Stream = 3,
  PJRT_Extension_Type_Layouts = 4,
  PJRT_Extension_Type_FFI = 5,
  PJRT_Extension_Type_MemoryDescriptions = 6,
  PJRT_Extension_Type_Triton = 7,
  PJRT_Extension_Type_RawBuffer = 8,
  PJRT_Extension_Type_PhaseCompile = 9,
  PJRT_Extension_Type_Example = 10,
  PJRT_Extension_Type_Unknown = 11,
  PJRT_Extension_Type_CrossHostTransfers = 12,
  PJRT_Extension_Type_ExecutableMetadata = 13,
  PJRT_Extension_Type_Callback = 14,
  PJRT_Extension_Type_HostAllocator = 15,
  PJRT_Extension_Type_TpuTopology = 16,
  PJRT_Extension_Type_TpuExecutable = 17,
  PJRT_Extension_Type_Megascale = 18,
  PJRT_Extension_Type_Shardings = 19,
  PJRT_Extension_Type_AbiVersion = 20,
  PJRT_Extension_Type_Collectives = 21,
  PJRT_Extension_Type_MultiSlice = 22,
  PJRT_Extension_Type_HostMemoryAllocator = 23,
  PJRT_Extension_Type_XlaTransform = 24,
} PJRT_Extension_Type;
typedef enum {
  PJRT_Error_Code_OK = 0,
  PJRT_Error_Code_CANCELLED = 1,
  PJRT_Error_Code_UNKNOWN = 2,
  PJRT_Error_Code_INVALID_ARGUMENT = 3,
  PJRT_Error_Code_DEADLINE_EXCEEDED = 4,
  PJRT_Error_Code_NOT_FOUND = 5,
  PJRT_Error_Code_ALREADY_EXISTS = 6,
  PJRT_Error_Code_PERMISSION_DENIED = 7,
  PJRT_Error_Code_RESOURCE_EXHAUSTED = 8,
  PJRT_Error_Code_FAILED_PRECONDITION = 9,
  PJRT_Error_Code_ABORTED = 10,
  PJRT_Error_Code_OUT_OF_RANGE = 11,
  PJRT_Error_Code_UNIMPLEMENTED = 12,
  PJRT_Error_Code_INTERNAL = 13,
  PJRT_Error_Code_UNAVAILABLE = 14,
  PJRT_Error_Code_DATA_LOSS = 15,
  PJRT_Error_Code_UNAUTHENTICATED = 16,
} PJRT_Error_Code;
typedef enum {
  PJRT_NamedValue_kString = 0,
  PJRT_NamedValue_kInt64 = 1,
  PJRT_NamedValue_kInt64List = 2,
  PJRT_NamedValue_kFloat = 3,
  PJRT_NamedValue_kBool = 4,
} PJRT_NamedValue_Type;
typedef enum {
  PJRT_ProcessState_kUnspecified = 0,
  PJRT_ProcessState_kUninitialized = 1,
  PJRT_ProcessState_kDisconnected = 2,
  PJRT_ProcessState_kConnected = 3,
  PJRT_ProcessState_kError = 4,
} PJRT_ProcessState;
typedef enum {
  PJRT_Buffer_Type_INVALID = 0,
  PJRT_Buffer_Type_PRED = 1,
  PJRT_Buffer_Type_S8 = 2,
  PJRT_Buffer_Type_S16 = 3,
  PJRT_Buffer_Type_S32 = 4,
  PJRT_Buffer_Type_S64 = 5,
  PJRT_Buffer_Type_U8 = 6,
  PJRT_Buffer_Type_U16 = 7,
  PJRT_Buffer_Type_U32 = 8,
  PJRT_Buffer_Type_U64 = 9,
  PJRT_Buffer_Type_F16 = 10,
  PJRT_Buffer_Type_F32 = 11,
  PJRT_Buffer_Type_F64 = 12,
  PJRT_Buffer_Type_BF16 = 13,
  PJRT_Buffer_Type_C64 = 14,
  PJRT_Buffer_Type_C128 = 15,
  PJRT_Buffer_Type_F8E5M2 = 16,
  PJRT_Buffer_Type_F8E4M3FN = 17,
  PJRT_Buffer_Type_F8E4M3B11FNUZ = 18,
  PJRT_Buffer_Type_F8E5M2FNUZ = 19,
  PJRT_Buffer_Type_F8E4M3FNUZ = 20,
  PJRT_Buffer_Type_S4 = 21,
  PJRT_Buffer_Type_U4 = 22,
  PJRT_Buffer_Type_TOKEN = 23,
  PJRT_Buffer_Type_S2 = 24,
  PJRT_Buffer_Type_U2 = 25,
  PJRT_Buffer_Type_F8E4M3 = 26,
  PJRT_Buffer_Type_F8E3M4 = 27,
  PJRT_Buffer_Type_F8E8M0FNU = 28,
  PJRT_Buffer_Type_F4E2M1FN = 29,
  PJRT_Buffer_Type_S1 = 30,
  PJRT_Buffer_Type_U1 = 31,
  PJRT_Buffer_Type_F6E2M3FN = 32,
  PJRT_Buffer_Type_F6E3M2FN = 33,
} PJRT_Buffer_Type;
typedef enum {
  PJRT_HostBufferSemantics_kImmutableOnlyDuringCall = 0,
  PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes = 1,
  PJRT_HostBufferSemantics_kImmutableZeroCopy = 2,
  PJRT_HostBufferSemantics_kMutableZeroCopy = 3,
} PJRT_HostBufferSemantics;
typedef enum {
  PJRT_Buffer_MemoryLayout_Type_Tiled = 0,
  PJRT_Buffer_MemoryLayout_Type_Strides = 1,
} PJRT_Buffer_MemoryLayout_Type;
typedef enum {
  PJRT_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE = 1,
} PJRT_FFI_Handler_TraitsBits;
typedef void (*PJRT_Error_PayloadVisitor)(const char* key, size_t key_size, const char* value, size_t value_size, void* user_arg);
typedef PJRT_Error* (*PJRT_CallbackError)(PJRT_Error_Code code, const char* message, size_t message_size);
typedef void (*PJRT_Event_OnReadyCallback)(PJRT_Error* error, void* user_arg);
typedef void (*PJRT_KeyValueGetCallback_ValueDeleter)(char* value);
typedef PJRT_Error* (*PJRT_KeyValueGetCallback)(PJRT_KeyValueGetCallback_Args* args);
typedef void (*PJRT_KeyValueTryGetCallback_ValueDeleter)(char* value);
typedef PJRT_Error* (*PJRT_KeyValueTryGetCallback)(PJRT_KeyValueTryGetCallback_Args* args);
typedef PJRT_Error* (*PJRT_KeyValuePutCallback)(PJRT_KeyValuePutCallback_Args* args);
typedef PJRT_Error* (*PJRT_SendCallback)(PJRT_Chunk* chunk, PJRT_CallbackError* callback_error, size_t total_size_in_bytes, bool done, void* user_arg);
typedef void (*PJRT_RecvCallback)(PJRT_CopyToDeviceStream* stream, void* user_arg);
typedef void (*PJRT_HloOutputCallback)(int64_t replica_id, int64_t partition_id, const void* data, const int64_t* shape_dims, size_t shape_num_dims, PJRT_Buffer_Type shape_element_type, int64_t operand_index, void* user_arg);

struct PJRT_Extension_Base {
  size_t struct_size;
  PJRT_Extension_Type type;
  struct PJRT_Extension_Base* next;
};
static_assert(sizeof(PJRT_Extension_Base) == 24);
PJRT_CHECK_FIELD(PJRT_Extension_Base, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Extension_Base, type, 8, 4);
PJRT_CHECK_FIELD(PJRT_Extension_Base, next, 16, 8);

struct PJRT_Api_Version {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  int major_version;
  int minor_version;
};
static_assert(sizeof(PJRT_Api_Version) == 24);
PJRT_CHECK_FIELD(PJRT_Api_Version, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Api_Version, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Api_Version, major_version, 16, 4);
PJRT_CHECK_FIELD(PJRT_Api_Version, minor_version, 20, 4);

struct PJRT_Error_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Error* error;
};
static_assert(sizeof(PJRT_Error_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Error_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Error_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Error_Destroy_Args, error, 16, 8);

struct PJRT_Error_Message_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_Error* error;
  const char* message;
  size_t message_size;
};
static_assert(sizeof(PJRT_Error_Message_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Error_Message_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Error_Message_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Error_Message_Args, error, 16, 8);
PJRT_CHECK_FIELD(PJRT_Error_Message_Args, message, 24, 8);
PJRT_CHECK_FIELD(PJRT_Error_Message_Args, message_size, 32, 8);

struct PJRT_Error_FunctionTable {
  size_t struct_size;
  size_t instance_size;
  PJRT_Extension_Base* extension_start;
  void (*destroy)(PJRT_Error* error);
  void (*message)(const PJRT_Error* error, const char** message, size_t* message_size);
  PJRT_Error_Code (*get_code)(const PJRT_Error* error);
  void (*for_each_payload)(const PJRT_Error* error, PJRT_Error_PayloadVisitor visitor, void* user_arg);
};
static_assert(sizeof(PJRT_Error_FunctionTable) == 56);
PJRT_CHECK_FIELD(PJRT_Error_FunctionTable, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Error_FunctionTable, instance_size, 8, 8);
PJRT_CHECK_FIELD(PJRT_Error_FunctionTable, extension_start, 16, 8);
PJRT_CHECK_FIELD(PJRT_Error_FunctionTable, destroy, 24, 8);
PJRT_CHECK_FIELD(PJRT_Error_FunctionTable, message, 32, 8);
PJRT_CHECK_FIELD(PJRT_Error_FunctionTable, get_code, 40, 8);
PJRT_CHECK_FIELD(PJRT_Error_FunctionTable, for_each_payload, 48, 8);

struct PJRT_Error {
  const struct PJRT_Error_FunctionTable* vtable;
};
static_assert(sizeof(PJRT_Error) == 8);
PJRT_CHECK_FIELD(PJRT_Error, vtable, 0, 8);

struct PJRT_Error_GetCode_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_Error* error;
  PJRT_Error_Code code;
};
static_assert(sizeof(PJRT_Error_GetCode_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Error_GetCode_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Error_GetCode_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Error_GetCode_Args, error, 16, 8);
PJRT_CHECK_FIELD(PJRT_Error_GetCode_Args, code, 24, 4);

struct PJRT_Error_ForEachPayload_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_Error* error;
  PJRT_Error_PayloadVisitor visitor;
  void* user_arg;
};
static_assert(sizeof(PJRT_Error_ForEachPayload_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Error_ForEachPayload_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Error_ForEachPayload_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Error_ForEachPayload_Args, error, 16, 8);
PJRT_CHECK_FIELD(PJRT_Error_ForEachPayload_Args, visitor, 24, 8);
PJRT_CHECK_FIELD(PJRT_Error_ForEachPayload_Args, user_arg, 32, 8);

struct PJRT_NamedValue {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* name;
  size_t name_size;
  PJRT_NamedValue_Type type;
  union { const char* string_value; int64_t int64_value; const int64_t* int64_array_value; float float_value; bool bool_value; };
  size_t value_size;
};
static_assert(sizeof(PJRT_NamedValue) == 56);
PJRT_CHECK_FIELD(PJRT_NamedValue, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_NamedValue, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_NamedValue, name, 16, 8);
PJRT_CHECK_FIELD(PJRT_NamedValue, name_size, 24, 8);
PJRT_CHECK_FIELD(PJRT_NamedValue, type, 32, 4);
PJRT_CHECK_FIELD(PJRT_NamedValue, string_value, 40, 8);
PJRT_CHECK_FIELD(PJRT_NamedValue, int64_value, 40, 8);
PJRT_CHECK_FIELD(PJRT_NamedValue, int64_array_value, 40, 8);
PJRT_CHECK_FIELD(PJRT_NamedValue, float_value, 40, 4);
PJRT_CHECK_FIELD(PJRT_NamedValue, bool_value, 40, 1);
PJRT_CHECK_FIELD(PJRT_NamedValue, value_size, 48, 8);

struct PJRT_Plugin_Initialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
};
static_assert(sizeof(PJRT_Plugin_Initialize_Args) == 16);
PJRT_CHECK_FIELD(PJRT_Plugin_Initialize_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Plugin_Initialize_Args, extension_start, 8, 8);

struct PJRT_Plugin_Attributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_NamedValue* attributes;
  size_t num_attributes;
};
static_assert(sizeof(PJRT_Plugin_Attributes_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Plugin_Attributes_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Plugin_Attributes_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Plugin_Attributes_Args, attributes, 16, 8);
PJRT_CHECK_FIELD(PJRT_Plugin_Attributes_Args, num_attributes, 24, 8);

struct PJRT_Event_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Event* event;
};
static_assert(sizeof(PJRT_Event_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Event_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Event_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Event_Destroy_Args, event, 16, 8);

struct PJRT_Event_IsReady_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Event* event;
  bool is_ready;
};
static_assert(sizeof(PJRT_Event_IsReady_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Event_IsReady_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Event_IsReady_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Event_IsReady_Args, event, 16, 8);
PJRT_CHECK_FIELD(PJRT_Event_IsReady_Args, is_ready, 24, 1);

struct PJRT_Event_Error_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Event* event;
};
static_assert(sizeof(PJRT_Event_Error_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Event_Error_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Event_Error_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Event_Error_Args, event, 16, 8);

struct PJRT_Event_Await_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Event* event;
};
static_assert(sizeof(PJRT_Event_Await_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Event_Await_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Event_Await_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Event_Await_Args, event, 16, 8);

struct PJRT_Event_OnReady_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Event* event;
  PJRT_Event_OnReadyCallback callback;
  void* user_arg;
};
static_assert(sizeof(PJRT_Event_OnReady_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Event_OnReady_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Event_OnReady_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Event_OnReady_Args, event, 16, 8);
PJRT_CHECK_FIELD(PJRT_Event_OnReady_Args, callback, 24, 8);
PJRT_CHECK_FIELD(PJRT_Event_OnReady_Args, user_arg, 32, 8);

struct PJRT_Event_Create_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Event* event;
};
static_assert(sizeof(PJRT_Event_Create_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Event_Create_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Event_Create_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Event_Create_Args, event, 16, 8);

struct PJRT_Event_Set_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Event* event;
  PJRT_Error_Code error_code;
  const char* error_message;
  size_t error_message_size;
};
static_assert(sizeof(PJRT_Event_Set_Args) == 48);
PJRT_CHECK_FIELD(PJRT_Event_Set_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Event_Set_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Event_Set_Args, event, 16, 8);
PJRT_CHECK_FIELD(PJRT_Event_Set_Args, error_code, 24, 4);
PJRT_CHECK_FIELD(PJRT_Event_Set_Args, error_message, 32, 8);
PJRT_CHECK_FIELD(PJRT_Event_Set_Args, error_message_size, 40, 8);

struct PJRT_Memory_FunctionTable {
  size_t struct_size;
  struct PJRT_Extension_Base* extension_start;
  size_t instance_struct_size;
  void* (*get_user_data)(struct PJRT_Memory* memory, const void* key);
  void (*set_user_data)(struct PJRT_Memory* memory, const void* key, void* data, void (*dtor)(void*));
};
static_assert(sizeof(PJRT_Memory_FunctionTable) == 40);
PJRT_CHECK_FIELD(PJRT_Memory_FunctionTable, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Memory_FunctionTable, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Memory_FunctionTable, instance_struct_size, 16, 8);
PJRT_CHECK_FIELD(PJRT_Memory_FunctionTable, get_user_data, 24, 8);
PJRT_CHECK_FIELD(PJRT_Memory_FunctionTable, set_user_data, 32, 8);

struct PJRT_Memory {
  const struct PJRT_Memory_FunctionTable* vtable;
};
static_assert(sizeof(PJRT_Memory) == 8);
PJRT_CHECK_FIELD(PJRT_Memory, vtable, 0, 8);

struct PJRT_KeyValueGetCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* key;
  size_t key_size;
  int timeout_in_ms;
  PJRT_CallbackError* callback_error;
  void* user_arg;
  char* value;
  size_t value_size;
  PJRT_KeyValueGetCallback_ValueDeleter value_deleter_callback;
};
static_assert(sizeof(PJRT_KeyValueGetCallback_Args) == 80);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, key, 16, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, key_size, 24, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, timeout_in_ms, 32, 4);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, callback_error, 40, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, user_arg, 48, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, value, 56, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, value_size, 64, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueGetCallback_Args, value_deleter_callback, 72, 8);

struct PJRT_KeyValueTryGetCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* key;
  size_t key_size;
  PJRT_CallbackError* callback_error;
  void* user_arg;
  char* value;
  size_t value_size;
  PJRT_KeyValueTryGetCallback_ValueDeleter value_deleter_callback;
};
static_assert(sizeof(PJRT_KeyValueTryGetCallback_Args) == 72);
PJRT_CHECK_FIELD(PJRT_KeyValueTryGetCallback_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueTryGetCallback_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueTryGetCallback_Args, key, 16, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueTryGetCallback_Args, key_size, 24, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueTryGetCallback_Args, callback_error, 32, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueTryGetCallback_Args, user_arg, 40, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueTryGetCallback_Args, value, 48, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueTryGetCallback_Args, value_size, 56, 8);
PJRT_CHECK_FIELD(PJRT_KeyValueTryGetCallback_Args, value_deleter_callback, 64, 8);

struct PJRT_KeyValuePutCallback_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* key;
  size_t key_size;
  const char* value;
  size_t value_size;
  PJRT_CallbackError* callback_error;
  void* user_arg;
};
static_assert(sizeof(PJRT_KeyValuePutCallback_Args) == 64);
PJRT_CHECK_FIELD(PJRT_KeyValuePutCallback_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_KeyValuePutCallback_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_KeyValuePutCallback_Args, key, 16, 8);
PJRT_CHECK_FIELD(PJRT_KeyValuePutCallback_Args, key_size, 24, 8);
PJRT_CHECK_FIELD(PJRT_KeyValuePutCallback_Args, value, 32, 8);
PJRT_CHECK_FIELD(PJRT_KeyValuePutCallback_Args, value_size, 40, 8);
PJRT_CHECK_FIELD(PJRT_KeyValuePutCallback_Args, callback_error, 48, 8);
PJRT_CHECK_FIELD(PJRT_KeyValuePutCallback_Args, user_arg, 56, 8);

struct PJRT_Client_Create_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_NamedValue* create_options;
  size_t num_options;
  PJRT_KeyValueGetCallback kv_get_callback;
  void* kv_get_user_arg;
  PJRT_KeyValuePutCallback kv_put_callback;
  void* kv_put_user_arg;
  PJRT_Client* client;
  PJRT_KeyValueTryGetCallback kv_try_get_callback;
  void* kv_try_get_user_arg;
};
static_assert(sizeof(PJRT_Client_Create_Args) == 88);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, create_options, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, num_options, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, kv_get_callback, 32, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, kv_get_user_arg, 40, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, kv_put_callback, 48, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, kv_put_user_arg, 56, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, client, 64, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, kv_try_get_callback, 72, 8);
PJRT_CHECK_FIELD(PJRT_Client_Create_Args, kv_try_get_user_arg, 80, 8);

struct PJRT_Client_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
};
static_assert(sizeof(PJRT_Client_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Client_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_Destroy_Args, client, 16, 8);

struct PJRT_Client_PlatformName_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  const char* platform_name;
  size_t platform_name_size;
};
static_assert(sizeof(PJRT_Client_PlatformName_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Client_PlatformName_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_PlatformName_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_PlatformName_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_PlatformName_Args, platform_name, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_PlatformName_Args, platform_name_size, 32, 8);

struct PJRT_Client_ProcessIndex_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  int process_index;
};
static_assert(sizeof(PJRT_Client_ProcessIndex_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Client_ProcessIndex_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_ProcessIndex_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_ProcessIndex_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_ProcessIndex_Args, process_index, 24, 4);

struct PJRT_Client_PlatformVersion_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  const char* platform_version;
  size_t platform_version_size;
};
static_assert(sizeof(PJRT_Client_PlatformVersion_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Client_PlatformVersion_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_PlatformVersion_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_PlatformVersion_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_PlatformVersion_Args, platform_version, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_PlatformVersion_Args, platform_version_size, 32, 8);

struct PJRT_Client_TopologyDescription_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_TopologyDescription* topology;
};
static_assert(sizeof(PJRT_Client_TopologyDescription_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Client_TopologyDescription_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_TopologyDescription_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_TopologyDescription_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_TopologyDescription_Args, topology, 24, 8);

struct PJRT_Client_Devices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Device* const* devices;
  size_t num_devices;
};
static_assert(sizeof(PJRT_Client_Devices_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Client_Devices_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_Devices_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_Devices_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_Devices_Args, devices, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_Devices_Args, num_devices, 32, 8);

struct PJRT_Client_AddressableDevices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Device* const* addressable_devices;
  size_t num_addressable_devices;
};
static_assert(sizeof(PJRT_Client_AddressableDevices_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Client_AddressableDevices_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_AddressableDevices_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_AddressableDevices_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_AddressableDevices_Args, addressable_devices, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_AddressableDevices_Args, num_addressable_devices, 32, 8);

struct PJRT_Client_LookupDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  int id;
  PJRT_Device* device;
};
static_assert(sizeof(PJRT_Client_LookupDevice_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Client_LookupDevice_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_LookupDevice_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_LookupDevice_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_LookupDevice_Args, id, 24, 4);
PJRT_CHECK_FIELD(PJRT_Client_LookupDevice_Args, device, 32, 8);

struct PJRT_Client_LookupAddressableDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  int local_hardware_id;
  PJRT_Device* addressable_device;
};
static_assert(sizeof(PJRT_Client_LookupAddressableDevice_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Client_LookupAddressableDevice_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_LookupAddressableDevice_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_LookupAddressableDevice_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_LookupAddressableDevice_Args, local_hardware_id, 24, 4);
PJRT_CHECK_FIELD(PJRT_Client_LookupAddressableDevice_Args, addressable_device, 32, 8);

struct PJRT_ProcessInfo {
  size_t struct_size;
  int task_id;
  uint64_t incarnation_id;
  PJRT_ProcessState state;
  int error_code;
  const char* error_message;
  size_t error_message_size;
};
static_assert(sizeof(PJRT_ProcessInfo) == 48);
PJRT_CHECK_FIELD(PJRT_ProcessInfo, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_ProcessInfo, task_id, 8, 4);
PJRT_CHECK_FIELD(PJRT_ProcessInfo, incarnation_id, 16, 8);
PJRT_CHECK_FIELD(PJRT_ProcessInfo, state, 24, 4);
PJRT_CHECK_FIELD(PJRT_ProcessInfo, error_code, 28, 4);
PJRT_CHECK_FIELD(PJRT_ProcessInfo, error_message, 32, 8);
PJRT_CHECK_FIELD(PJRT_ProcessInfo, error_message_size, 40, 8);

struct PJRT_Client_UpdateGlobalProcessInfo_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_ProcessInfo* process_infos;
  size_t num_process_infos;
};
static_assert(sizeof(PJRT_Client_UpdateGlobalProcessInfo_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Client_UpdateGlobalProcessInfo_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_UpdateGlobalProcessInfo_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_UpdateGlobalProcessInfo_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_UpdateGlobalProcessInfo_Args, process_infos, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_UpdateGlobalProcessInfo_Args, num_process_infos, 32, 8);

struct PJRT_Client_AddressableMemories_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Memory* const* addressable_memories;
  size_t num_addressable_memories;
};
static_assert(sizeof(PJRT_Client_AddressableMemories_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Client_AddressableMemories_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_AddressableMemories_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_AddressableMemories_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_AddressableMemories_Args, addressable_memories, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_AddressableMemories_Args, num_addressable_memories, 32, 8);

struct PJRT_Program {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  char* code;
  size_t code_size;
  const char* format;
  size_t format_size;
};
static_assert(sizeof(PJRT_Program) == 48);
PJRT_CHECK_FIELD(PJRT_Program, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Program, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Program, code, 16, 8);
PJRT_CHECK_FIELD(PJRT_Program, code_size, 24, 8);
PJRT_CHECK_FIELD(PJRT_Program, format, 32, 8);
PJRT_CHECK_FIELD(PJRT_Program, format_size, 40, 8);

struct PJRT_Client_Compile_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  const PJRT_Program* program;
  const char* compile_options;
  size_t compile_options_size;
  PJRT_LoadedExecutable* executable;
};
static_assert(sizeof(PJRT_Client_Compile_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Client_Compile_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_Compile_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_Compile_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_Compile_Args, program, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_Compile_Args, compile_options, 32, 8);
PJRT_CHECK_FIELD(PJRT_Client_Compile_Args, compile_options_size, 40, 8);
PJRT_CHECK_FIELD(PJRT_Client_Compile_Args, executable, 48, 8);

struct PJRT_Client_Load_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Executable* executable;
  const char* compile_options;
  size_t compile_options_size;
  PJRT_LoadedExecutable* loaded_executable;
};
static_assert(sizeof(PJRT_Client_Load_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Client_Load_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_Load_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_Load_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_Load_Args, executable, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_Load_Args, compile_options, 32, 8);
PJRT_CHECK_FIELD(PJRT_Client_Load_Args, compile_options_size, 40, 8);
PJRT_CHECK_FIELD(PJRT_Client_Load_Args, loaded_executable, 48, 8);

struct PJRT_Client_DefaultDeviceAssignment_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  int num_replicas;
  int num_partitions;
  size_t default_assignment_size;
  int* default_assignment;
};
static_assert(sizeof(PJRT_Client_DefaultDeviceAssignment_Args) == 48);
PJRT_CHECK_FIELD(PJRT_Client_DefaultDeviceAssignment_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_DefaultDeviceAssignment_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_DefaultDeviceAssignment_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_DefaultDeviceAssignment_Args, num_replicas, 24, 4);
PJRT_CHECK_FIELD(PJRT_Client_DefaultDeviceAssignment_Args, num_partitions, 28, 4);
PJRT_CHECK_FIELD(PJRT_Client_DefaultDeviceAssignment_Args, default_assignment_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_Client_DefaultDeviceAssignment_Args, default_assignment, 40, 8);

struct PJRT_Client_DmaMap_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  void* data;
  size_t size;
};
static_assert(sizeof(PJRT_Client_DmaMap_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Client_DmaMap_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_DmaMap_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_DmaMap_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_DmaMap_Args, data, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_DmaMap_Args, size, 32, 8);

struct PJRT_Client_DmaUnmap_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  void* data;
};
static_assert(sizeof(PJRT_Client_DmaUnmap_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Client_DmaUnmap_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_DmaUnmap_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_DmaUnmap_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_DmaUnmap_Args, data, 24, 8);

struct PJRT_AsyncHostToDeviceTransferManager_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
};
static_assert(sizeof(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args, transfer_manager, 16, 8);

struct PJRT_AsyncHostToDeviceTransferManager_TransferData_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int buffer_index;
  const void* data;
  int64_t offset;
  int64_t transfer_size;
  bool is_last_transfer;
  PJRT_Event* done_with_h2d_transfer;
};
static_assert(sizeof(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args) == 72);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, transfer_manager, 16, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, buffer_index, 24, 4);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, data, 32, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, offset, 40, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, transfer_size, 48, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, is_last_transfer, 56, 1);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, done_with_h2d_transfer, 64, 8);

struct PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int buffer_index;
  PJRT_Buffer* buffer_out;
};
static_assert(sizeof(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args) == 40);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, transfer_manager, 16, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, buffer_index, 24, 4);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, buffer_out, 32, 8);

struct PJRT_AsyncHostToDeviceTransferManager_Device_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  PJRT_Device* device_out;
};
static_assert(sizeof(PJRT_AsyncHostToDeviceTransferManager_Device_Args) == 32);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_Device_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_Device_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_Device_Args, transfer_manager, 16, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_Device_Args, device_out, 24, 8);

struct PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  size_t buffer_count;
};
static_assert(sizeof(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args) == 32);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args, transfer_manager, 16, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args, buffer_count, 24, 8);

struct PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int buffer_index;
  size_t buffer_size;
};
static_assert(sizeof(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args) == 40);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args, transfer_manager, 16, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args, buffer_index, 24, 4);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args, buffer_size, 32, 8);

struct PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int buffer_index;
  PJRT_Error_Code error_code;
  const char* error_message;
  size_t error_message_size;
};
static_assert(sizeof(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args) == 48);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args, transfer_manager, 16, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args, buffer_index, 24, 4);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args, error_code, 28, 4);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args, error_message, 32, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args, error_message_size, 40, 8);

struct PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  const PJRT_NamedValue* transfer_metadata;
  size_t num_metadata;
};
static_assert(sizeof(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args) == 40);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args, transfer_manager, 16, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args, transfer_metadata, 24, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args, num_metadata, 32, 8);

struct PJRT_Buffer_MemoryLayout_Tiled {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const int64_t* minor_to_major;
  size_t minor_to_major_size;
  const int64_t* tile_dims;
  const size_t* tile_dim_sizes;
  size_t num_tiles;
};
static_assert(sizeof(PJRT_Buffer_MemoryLayout_Tiled) == 56);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Tiled, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Tiled, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Tiled, minor_to_major, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Tiled, minor_to_major_size, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Tiled, tile_dims, 32, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Tiled, tile_dim_sizes, 40, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Tiled, num_tiles, 48, 8);

struct PJRT_Buffer_MemoryLayout_Strides {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const int64_t* byte_strides;
  size_t num_byte_strides;
};
static_assert(sizeof(PJRT_Buffer_MemoryLayout_Strides) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Strides, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Strides, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Strides, byte_strides, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout_Strides, num_byte_strides, 24, 8);

struct PJRT_Buffer_MemoryLayout {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  union { PJRT_Buffer_MemoryLayout_Tiled tiled; PJRT_Buffer_MemoryLayout_Strides strides; };
  PJRT_Buffer_MemoryLayout_Type type;
};
static_assert(sizeof(PJRT_Buffer_MemoryLayout) == 80);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout, tiled, 16, 56);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout, strides, 16, 32);
PJRT_CHECK_FIELD(PJRT_Buffer_MemoryLayout, type, 72, 4);

struct PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
  int buffer_index;
  const void* data;
  const int64_t* shape_dims;
  size_t shape_num_dims;
  PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout* shape_layout;
  PJRT_Event* done_with_h2d_transfer;
};
static_assert(sizeof(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args) == 80);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, transfer_manager, 16, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, buffer_index, 24, 4);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, data, 32, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, shape_dims, 40, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, shape_num_dims, 48, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, shape_element_type, 56, 4);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, shape_layout, 64, 8);
PJRT_CHECK_FIELD(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, done_with_h2d_transfer, 72, 8);

struct PJRT_Client_CreateUninitializedBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  const int64_t* shape_dims;
  size_t shape_num_dims;
  PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout* shape_layout;
  PJRT_Device* device;
  PJRT_Memory* memory;
  PJRT_Buffer* buffer;
};
static_assert(sizeof(PJRT_Client_CreateUninitializedBuffer_Args) == 80);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, shape_dims, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, shape_num_dims, 32, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, shape_element_type, 40, 4);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, shape_layout, 48, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, device, 56, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, memory, 64, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateUninitializedBuffer_Args, buffer, 72, 8);

struct PJRT_Client_CreateErrorBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Error_Code error_code;
  const char* error_message;
  size_t error_message_size;
  const int64_t* shape_dims;
  size_t shape_num_dims;
  PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout* shape_layout;
  PJRT_Memory* memory;
  PJRT_Buffer* buffer;
  const PJRT_NamedValue* payload;
  size_t num_payload;
};
static_assert(sizeof(PJRT_Client_CreateErrorBuffer_Args) == 112);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, error_code, 24, 4);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, error_message, 32, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, error_message_size, 40, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, shape_dims, 48, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, shape_num_dims, 56, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, shape_element_type, 64, 4);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, shape_layout, 72, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, memory, 80, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, buffer, 88, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, payload, 96, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateErrorBuffer_Args, num_payload, 104, 8);

struct PJRT_Client_CreateAliasBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Memory* memory;
  const int64_t* shape_dims;
  size_t shape_num_dims;
  PJRT_Buffer_Type shape_element_type;
  PJRT_Buffer_MemoryLayout* shape_layout;
  PJRT_Buffer* alias_buffer;
  PJRT_FulfillAliasBufferCallback* fulfill_alias_buffer_cb;
};
static_assert(sizeof(PJRT_Client_CreateAliasBuffer_Args) == 80);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, memory, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, shape_dims, 32, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, shape_num_dims, 40, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, shape_element_type, 48, 4);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, shape_layout, 56, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, alias_buffer, 64, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateAliasBuffer_Args, fulfill_alias_buffer_cb, 72, 8);

struct PJRT_Client_FulfillAliasBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Buffer* buffer;
  PJRT_Error_Code status_code;
  const char* error_message;
  size_t error_message_size;
  PJRT_FulfillAliasBufferCallback* fulfill_alias_buffer_cb;
};
static_assert(sizeof(PJRT_Client_FulfillAliasBuffer_Args) == 64);
PJRT_CHECK_FIELD(PJRT_Client_FulfillAliasBuffer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_FulfillAliasBuffer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_FulfillAliasBuffer_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_FulfillAliasBuffer_Args, buffer, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_FulfillAliasBuffer_Args, status_code, 32, 4);
PJRT_CHECK_FIELD(PJRT_Client_FulfillAliasBuffer_Args, error_message, 40, 8);
PJRT_CHECK_FIELD(PJRT_Client_FulfillAliasBuffer_Args, error_message_size, 48, 8);
PJRT_CHECK_FIELD(PJRT_Client_FulfillAliasBuffer_Args, fulfill_alias_buffer_cb, 56, 8);

struct PJRT_Client_BufferFromHostBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  const void* data;
  PJRT_Buffer_Type type;
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;
  size_t num_byte_strides;
  PJRT_HostBufferSemantics host_buffer_semantics;
  PJRT_Device* device;
  PJRT_Memory* memory;
  PJRT_Buffer_MemoryLayout* device_layout;
  PJRT_Event* done_with_host_buffer;
  PJRT_Buffer* buffer;
};
static_assert(sizeof(PJRT_Client_BufferFromHostBuffer_Args) == 120);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, data, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, type, 32, 4);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, dims, 40, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, num_dims, 48, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, byte_strides, 56, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, num_byte_strides, 64, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, host_buffer_semantics, 72, 4);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, device, 80, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, memory, 88, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, device_layout, 96, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, done_with_host_buffer, 104, 8);
PJRT_CHECK_FIELD(PJRT_Client_BufferFromHostBuffer_Args, buffer, 112, 8);

struct PJRT_Client_CreateViewOfDeviceBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  void* device_buffer_ptr;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Buffer_Type element_type;
  PJRT_Buffer_MemoryLayout* layout;
  PJRT_Device* device;
  void (*on_delete_callback)(void* device_buffer_ptr, void* user_arg);
  void* on_delete_callback_arg;
  intptr_t stream;
  PJRT_Buffer* buffer;
  PJRT_Memory* memory;
};
static_assert(sizeof(PJRT_Client_CreateViewOfDeviceBuffer_Args) == 112);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, device_buffer_ptr, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, dims, 32, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, num_dims, 40, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, element_type, 48, 4);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, layout, 56, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, device, 64, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, on_delete_callback, 72, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, on_delete_callback_arg, 80, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, stream, 88, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, buffer, 96, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateViewOfDeviceBuffer_Args, memory, 104, 8);

struct PJRT_ShapeSpec {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Buffer_Type element_type;
};
static_assert(sizeof(PJRT_ShapeSpec) == 40);
PJRT_CHECK_FIELD(PJRT_ShapeSpec, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_ShapeSpec, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_ShapeSpec, dims, 16, 8);
PJRT_CHECK_FIELD(PJRT_ShapeSpec, num_dims, 24, 8);
PJRT_CHECK_FIELD(PJRT_ShapeSpec, element_type, 32, 4);

struct PJRT_Client_CreateBuffersForAsyncHostToDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_ShapeSpec* shape_specs;
  size_t num_shape_specs;
  PJRT_Buffer_MemoryLayout** device_layouts;
  size_t num_device_layouts;
  PJRT_Memory* memory;
  PJRT_AsyncHostToDeviceTransferManager* transfer_manager;
};
static_assert(sizeof(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args) == 72);
PJRT_CHECK_FIELD(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, shape_specs, 24, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, num_shape_specs, 32, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, device_layouts, 40, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, num_device_layouts, 48, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, memory, 56, 8);
PJRT_CHECK_FIELD(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, transfer_manager, 64, 8);

struct PJRT_DeviceDescription_Id_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  int id;
};
static_assert(sizeof(PJRT_DeviceDescription_Id_Args) == 32);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Id_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Id_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Id_Args, device_description, 16, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Id_Args, id, 24, 4);

struct PJRT_DeviceDescription_ProcessIndex_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  int process_index;
};
static_assert(sizeof(PJRT_DeviceDescription_ProcessIndex_Args) == 32);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_ProcessIndex_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_ProcessIndex_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_ProcessIndex_Args, device_description, 16, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_ProcessIndex_Args, process_index, 24, 4);

struct PJRT_DeviceDescription_Attributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  size_t num_attributes;
  const PJRT_NamedValue* attributes;
};
static_assert(sizeof(PJRT_DeviceDescription_Attributes_Args) == 40);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Attributes_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Attributes_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Attributes_Args, device_description, 16, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Attributes_Args, num_attributes, 24, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Attributes_Args, attributes, 32, 8);

struct PJRT_DeviceDescription_Kind_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  const char* device_kind;
  size_t device_kind_size;
};
static_assert(sizeof(PJRT_DeviceDescription_Kind_Args) == 40);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Kind_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Kind_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Kind_Args, device_description, 16, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Kind_Args, device_kind, 24, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_Kind_Args, device_kind_size, 32, 8);

struct PJRT_DeviceDescription_DebugString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  const char* debug_string;
  size_t debug_string_size;
};
static_assert(sizeof(PJRT_DeviceDescription_DebugString_Args) == 40);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_DebugString_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_DebugString_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_DebugString_Args, device_description, 16, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_DebugString_Args, debug_string, 24, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_DebugString_Args, debug_string_size, 32, 8);

struct PJRT_DeviceDescription_ToString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  const char* to_string;
  size_t to_string_size;
};
static_assert(sizeof(PJRT_DeviceDescription_ToString_Args) == 40);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_ToString_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_ToString_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_ToString_Args, device_description, 16, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_ToString_Args, to_string, 24, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_ToString_Args, to_string_size, 32, 8);

struct PJRT_Device_GetDescription_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  PJRT_DeviceDescription* device_description;
};
static_assert(sizeof(PJRT_Device_GetDescription_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Device_GetDescription_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_GetDescription_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_GetDescription_Args, device, 16, 8);
PJRT_CHECK_FIELD(PJRT_Device_GetDescription_Args, device_description, 24, 8);

struct PJRT_Device_IsAddressable_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  bool is_addressable;
};
static_assert(sizeof(PJRT_Device_IsAddressable_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Device_IsAddressable_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_IsAddressable_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_IsAddressable_Args, device, 16, 8);
PJRT_CHECK_FIELD(PJRT_Device_IsAddressable_Args, is_addressable, 24, 1);

struct PJRT_Device_LocalHardwareId_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  int local_hardware_id;
};
static_assert(sizeof(PJRT_Device_LocalHardwareId_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Device_LocalHardwareId_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_LocalHardwareId_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_LocalHardwareId_Args, device, 16, 8);
PJRT_CHECK_FIELD(PJRT_Device_LocalHardwareId_Args, local_hardware_id, 24, 4);

struct PJRT_Device_AddressableMemories_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  PJRT_Memory* const* memories;
  size_t num_memories;
};
static_assert(sizeof(PJRT_Device_AddressableMemories_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Device_AddressableMemories_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_AddressableMemories_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_AddressableMemories_Args, device, 16, 8);
PJRT_CHECK_FIELD(PJRT_Device_AddressableMemories_Args, memories, 24, 8);
PJRT_CHECK_FIELD(PJRT_Device_AddressableMemories_Args, num_memories, 32, 8);

struct PJRT_Device_DefaultMemory_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  PJRT_Memory* memory;
};
static_assert(sizeof(PJRT_Device_DefaultMemory_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Device_DefaultMemory_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_DefaultMemory_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_DefaultMemory_Args, device, 16, 8);
PJRT_CHECK_FIELD(PJRT_Device_DefaultMemory_Args, memory, 24, 8);

struct PJRT_Device_MemoryStats_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  int64_t bytes_in_use;
  int64_t peak_bytes_in_use;
  bool peak_bytes_in_use_is_set;
  int64_t num_allocs;
  bool num_allocs_is_set;
  int64_t largest_alloc_size;
  bool largest_alloc_size_is_set;
  int64_t bytes_limit;
  bool bytes_limit_is_set;
  int64_t bytes_reserved;
  bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved;
  bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes;
  bool largest_free_block_bytes_is_set;
  int64_t pool_bytes;
  bool pool_bytes_is_set;
  int64_t peak_pool_bytes;
  bool peak_pool_bytes_is_set;
  int64_t peak_allocated_bytes;
  bool peak_allocated_bytes_is_set;
};
static_assert(sizeof(PJRT_Device_MemoryStats_Args) == 208);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, device, 16, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, bytes_in_use, 24, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, peak_bytes_in_use, 32, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, peak_bytes_in_use_is_set, 40, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, num_allocs, 48, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, num_allocs_is_set, 56, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, largest_alloc_size, 64, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, largest_alloc_size_is_set, 72, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, bytes_limit, 80, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, bytes_limit_is_set, 88, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, bytes_reserved, 96, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, bytes_reserved_is_set, 104, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, peak_bytes_reserved, 112, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, peak_bytes_reserved_is_set, 120, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, bytes_reservable_limit, 128, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, bytes_reservable_limit_is_set, 136, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, largest_free_block_bytes, 144, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, largest_free_block_bytes_is_set, 152, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, pool_bytes, 160, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, pool_bytes_is_set, 168, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, peak_pool_bytes, 176, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, peak_pool_bytes_is_set, 184, 1);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, peak_allocated_bytes, 192, 8);
PJRT_CHECK_FIELD(PJRT_Device_MemoryStats_Args, peak_allocated_bytes_is_set, 200, 1);

struct PJRT_Device_ClearMemoryStats_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
};
static_assert(sizeof(PJRT_Device_ClearMemoryStats_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Device_ClearMemoryStats_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_ClearMemoryStats_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_ClearMemoryStats_Args, device, 16, 8);

struct PJRT_Device_PoisonExecution_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  int32_t launch_id;
  PJRT_Error_Code error_code;
  const char* error_message;
  size_t error_message_size;
  bool poisoned;
  const PJRT_NamedValue* payload;
  size_t num_payload;
};
static_assert(sizeof(PJRT_Device_PoisonExecution_Args) == 72);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, device, 16, 8);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, launch_id, 24, 4);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, error_code, 28, 4);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, error_message, 32, 8);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, error_message_size, 40, 8);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, poisoned, 48, 1);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, payload, 56, 8);
PJRT_CHECK_FIELD(PJRT_Device_PoisonExecution_Args, num_payload, 64, 8);

struct PJRT_Device_GetAttributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  const PJRT_NamedValue* attributes;
  size_t num_attributes;
  PJRT_Device_Attributes* device_attributes;
  void (*attributes_deleter)(PJRT_Device_Attributes* device_attributes);
};
static_assert(sizeof(PJRT_Device_GetAttributes_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Device_GetAttributes_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_GetAttributes_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_GetAttributes_Args, device, 16, 8);
PJRT_CHECK_FIELD(PJRT_Device_GetAttributes_Args, attributes, 24, 8);
PJRT_CHECK_FIELD(PJRT_Device_GetAttributes_Args, num_attributes, 32, 8);
PJRT_CHECK_FIELD(PJRT_Device_GetAttributes_Args, device_attributes, 40, 8);
PJRT_CHECK_FIELD(PJRT_Device_GetAttributes_Args, attributes_deleter, 48, 8);

struct PJRT_Device_CreateAsyncTrackingEvent_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Device* device;
  const char* description;
  size_t description_size;
  PJRT_AsyncTrackingEvent* event;
};
static_assert(sizeof(PJRT_Device_CreateAsyncTrackingEvent_Args) == 48);
PJRT_CHECK_FIELD(PJRT_Device_CreateAsyncTrackingEvent_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Device_CreateAsyncTrackingEvent_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Device_CreateAsyncTrackingEvent_Args, device, 16, 8);
PJRT_CHECK_FIELD(PJRT_Device_CreateAsyncTrackingEvent_Args, description, 24, 8);
PJRT_CHECK_FIELD(PJRT_Device_CreateAsyncTrackingEvent_Args, description_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_Device_CreateAsyncTrackingEvent_Args, event, 40, 8);

struct PJRT_AsyncTrackingEvent_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_AsyncTrackingEvent* event;
};
static_assert(sizeof(PJRT_AsyncTrackingEvent_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_AsyncTrackingEvent_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_AsyncTrackingEvent_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_AsyncTrackingEvent_Destroy_Args, event, 16, 8);

struct PJRT_Memory_Id_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  int id;
};
static_assert(sizeof(PJRT_Memory_Id_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Memory_Id_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Id_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Id_Args, memory, 16, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Id_Args, id, 24, 4);

struct PJRT_Memory_Kind_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  const char* kind;
  size_t kind_size;
};
static_assert(sizeof(PJRT_Memory_Kind_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Memory_Kind_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Kind_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Kind_Args, memory, 16, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Kind_Args, kind, 24, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Kind_Args, kind_size, 32, 8);

struct PJRT_Memory_Kind_Id_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  int kind_id;
};
static_assert(sizeof(PJRT_Memory_Kind_Id_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Memory_Kind_Id_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Kind_Id_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Kind_Id_Args, memory, 16, 8);
PJRT_CHECK_FIELD(PJRT_Memory_Kind_Id_Args, kind_id, 24, 4);

struct PJRT_Memory_DebugString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  const char* debug_string;
  size_t debug_string_size;
};
static_assert(sizeof(PJRT_Memory_DebugString_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Memory_DebugString_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Memory_DebugString_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Memory_DebugString_Args, memory, 16, 8);
PJRT_CHECK_FIELD(PJRT_Memory_DebugString_Args, debug_string, 24, 8);
PJRT_CHECK_FIELD(PJRT_Memory_DebugString_Args, debug_string_size, 32, 8);

struct PJRT_Memory_ToString_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  const char* to_string;
  size_t to_string_size;
};
static_assert(sizeof(PJRT_Memory_ToString_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Memory_ToString_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Memory_ToString_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Memory_ToString_Args, memory, 16, 8);
PJRT_CHECK_FIELD(PJRT_Memory_ToString_Args, to_string, 24, 8);
PJRT_CHECK_FIELD(PJRT_Memory_ToString_Args, to_string_size, 32, 8);

struct PJRT_Memory_AddressableByDevices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Memory* memory;
  PJRT_Device* const* devices;
  size_t num_devices;
};
static_assert(sizeof(PJRT_Memory_AddressableByDevices_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Memory_AddressableByDevices_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Memory_AddressableByDevices_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Memory_AddressableByDevices_Args, memory, 16, 8);
PJRT_CHECK_FIELD(PJRT_Memory_AddressableByDevices_Args, devices, 24, 8);
PJRT_CHECK_FIELD(PJRT_Memory_AddressableByDevices_Args, num_devices, 32, 8);

struct PJRT_ExecuteContext_Create_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_ExecuteContext* context;
};
static_assert(sizeof(PJRT_ExecuteContext_Create_Args) == 24);
PJRT_CHECK_FIELD(PJRT_ExecuteContext_Create_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteContext_Create_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteContext_Create_Args, context, 16, 8);

struct PJRT_ExecuteContext_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_ExecuteContext* context;
};
static_assert(sizeof(PJRT_ExecuteContext_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_ExecuteContext_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteContext_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteContext_Destroy_Args, context, 16, 8);

struct PJRT_Executable_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
};
static_assert(sizeof(PJRT_Executable_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Executable_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Destroy_Args, executable, 16, 8);

struct PJRT_LoadedExecutable_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;
};
static_assert(sizeof(PJRT_LoadedExecutable_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Destroy_Args, executable, 16, 8);

struct PJRT_LoadedExecutable_GetExecutable_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* loaded_executable;
  PJRT_Executable* executable;
};
static_assert(sizeof(PJRT_LoadedExecutable_GetExecutable_Args) == 32);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetExecutable_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetExecutable_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetExecutable_Args, loaded_executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetExecutable_Args, executable, 24, 8);

struct PJRT_LoadedExecutable_GetDeviceAssignment_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;
  const char* serialized_bytes;
  size_t serialized_bytes_size;
  PJRT_DeviceAssignmentSerialized* serialized_device_assignment;
  void (*serialized_device_assignment_deleter)(PJRT_DeviceAssignmentSerialized* da);
};
static_assert(sizeof(PJRT_LoadedExecutable_GetDeviceAssignment_Args) == 56);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetDeviceAssignment_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetDeviceAssignment_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetDeviceAssignment_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetDeviceAssignment_Args, serialized_bytes, 24, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetDeviceAssignment_Args, serialized_bytes_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetDeviceAssignment_Args, serialized_device_assignment, 40, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_GetDeviceAssignment_Args, serialized_device_assignment_deleter, 48, 8);

struct PJRT_Executable_Name_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  const char* executable_name;
  size_t executable_name_size;
};
static_assert(sizeof(PJRT_Executable_Name_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Executable_Name_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Name_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Name_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Name_Args, executable_name, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Name_Args, executable_name_size, 32, 8);

struct PJRT_Executable_NumReplicas_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_replicas;
};
static_assert(sizeof(PJRT_Executable_NumReplicas_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Executable_NumReplicas_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_NumReplicas_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_NumReplicas_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_NumReplicas_Args, num_replicas, 24, 8);

struct PJRT_Executable_NumPartitions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_partitions;
};
static_assert(sizeof(PJRT_Executable_NumPartitions_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Executable_NumPartitions_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_NumPartitions_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_NumPartitions_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_NumPartitions_Args, num_partitions, 24, 8);

struct PJRT_LogicalDeviceIds {
  int replica;
  int partition;
};
static_assert(sizeof(PJRT_LogicalDeviceIds) == 8);
PJRT_CHECK_FIELD(PJRT_LogicalDeviceIds, replica, 0, 4);
PJRT_CHECK_FIELD(PJRT_LogicalDeviceIds, partition, 4, 4);

struct PJRT_LoadedExecutable_AddressableDevices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;
  PJRT_Device* const* addressable_devices;
  size_t num_addressable_devices;
};
static_assert(sizeof(PJRT_LoadedExecutable_AddressableDevices_Args) == 40);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDevices_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDevices_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDevices_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDevices_Args, addressable_devices, 24, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDevices_Args, num_addressable_devices, 32, 8);

struct PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;
  PJRT_LogicalDeviceIds* addressable_device_logical_ids;
  size_t num_addressable_device_logical_ids;
};
static_assert(sizeof(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args) == 40);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args, addressable_device_logical_ids, 24, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args, num_addressable_device_logical_ids, 32, 8);

struct PJRT_Executable_OptimizedProgram_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  PJRT_Program* program;
};
static_assert(sizeof(PJRT_Executable_OptimizedProgram_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Executable_OptimizedProgram_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OptimizedProgram_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OptimizedProgram_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OptimizedProgram_Args, program, 24, 8);

struct PJRT_LoadedExecutable_Delete_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;
};
static_assert(sizeof(PJRT_LoadedExecutable_Delete_Args) == 24);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Delete_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Delete_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Delete_Args, executable, 16, 8);

struct PJRT_LoadedExecutable_IsDeleted_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;
  bool is_deleted;
};
static_assert(sizeof(PJRT_LoadedExecutable_IsDeleted_Args) == 32);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_IsDeleted_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_IsDeleted_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_IsDeleted_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_IsDeleted_Args, is_deleted, 24, 1);

struct PJRT_Chunk {
  void* data;
  size_t size;
  void (*deleter)(void* data, void* deleter_arg);
  void* deleter_arg;
};
static_assert(sizeof(PJRT_Chunk) == 32);
PJRT_CHECK_FIELD(PJRT_Chunk, data, 0, 8);
PJRT_CHECK_FIELD(PJRT_Chunk, size, 8, 8);
PJRT_CHECK_FIELD(PJRT_Chunk, deleter, 16, 8);
PJRT_CHECK_FIELD(PJRT_Chunk, deleter_arg, 24, 8);

struct PJRT_SendCallbackInfo {
  int64_t channel_id;
  void* user_arg;
  PJRT_SendCallback send_callback;
};
static_assert(sizeof(PJRT_SendCallbackInfo) == 24);
PJRT_CHECK_FIELD(PJRT_SendCallbackInfo, channel_id, 0, 8);
PJRT_CHECK_FIELD(PJRT_SendCallbackInfo, user_arg, 8, 8);
PJRT_CHECK_FIELD(PJRT_SendCallbackInfo, send_callback, 16, 8);

struct PJRT_RecvCallbackInfo {
  int64_t channel_id;
  void* user_arg;
  PJRT_RecvCallback recv_callback;
};
static_assert(sizeof(PJRT_RecvCallbackInfo) == 24);
PJRT_CHECK_FIELD(PJRT_RecvCallbackInfo, channel_id, 0, 8);
PJRT_CHECK_FIELD(PJRT_RecvCallbackInfo, user_arg, 8, 8);
PJRT_CHECK_FIELD(PJRT_RecvCallbackInfo, recv_callback, 16, 8);

struct PJRT_HloOutputCallbackInfo {
  void* user_arg;
  PJRT_HloOutputCallback callback;
  int64_t callback_id;
  size_t num_operands;
};
static_assert(sizeof(PJRT_HloOutputCallbackInfo) == 32);
PJRT_CHECK_FIELD(PJRT_HloOutputCallbackInfo, user_arg, 0, 8);
PJRT_CHECK_FIELD(PJRT_HloOutputCallbackInfo, callback, 8, 8);
PJRT_CHECK_FIELD(PJRT_HloOutputCallbackInfo, callback_id, 16, 8);
PJRT_CHECK_FIELD(PJRT_HloOutputCallbackInfo, num_operands, 24, 8);

struct PJRT_ExecuteOptions {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_SendCallbackInfo** send_callbacks;
  PJRT_RecvCallbackInfo** recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t* non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  PJRT_ExecuteContext* context;
  const char* call_location;
  size_t num_tasks;
  int* task_ids;
  int64_t* incarnation_ids;
  PJRT_MultiSlice_Config* multi_slice_config;
  bool use_major_to_minor_data_layout_for_callbacks;
  PJRT_HloOutputCallbackInfo* hlo_output_callbacks;
  size_t num_hlo_output_callbacks;
};
static_assert(sizeof(PJRT_ExecuteOptions) == 144);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, send_callbacks, 16, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, recv_callbacks, 24, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, num_send_ops, 32, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, num_recv_ops, 40, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, launch_id, 48, 4);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, non_donatable_input_indices, 56, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, num_non_donatable_input_indices, 64, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, context, 72, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, call_location, 80, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, num_tasks, 88, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, task_ids, 96, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, incarnation_ids, 104, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, multi_slice_config, 112, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, use_major_to_minor_data_layout_for_callbacks, 120, 1);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, hlo_output_callbacks, 128, 8);
PJRT_CHECK_FIELD(PJRT_ExecuteOptions, num_hlo_output_callbacks, 136, 8);

struct PJRT_LoadedExecutable_Execute_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;
  PJRT_ExecuteOptions* options;
  PJRT_Buffer* const* const* argument_lists;
  size_t num_devices;
  size_t num_args;
  PJRT_Buffer** const* output_lists;
  PJRT_Event** device_complete_events;
  PJRT_Device* execute_device;
};
static_assert(sizeof(PJRT_LoadedExecutable_Execute_Args) == 80);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, options, 24, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, argument_lists, 32, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, num_devices, 40, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, num_args, 48, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, output_lists, 56, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, device_complete_events, 64, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Execute_Args, execute_device, 72, 8);

struct PJRT_Executable_NumOutputs_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_outputs;
};
static_assert(sizeof(PJRT_Executable_NumOutputs_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Executable_NumOutputs_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_NumOutputs_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_NumOutputs_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_NumOutputs_Args, num_outputs, 24, 8);

struct PJRT_Executable_SizeOfGeneratedCodeInBytes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  int64_t size_in_bytes;
};
static_assert(sizeof(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args, size_in_bytes, 24, 8);

struct PJRT_Executable_Fingerprint_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  const char* executable_fingerprint;
  size_t executable_fingerprint_size;
};
static_assert(sizeof(PJRT_Executable_Fingerprint_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Executable_Fingerprint_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Fingerprint_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Fingerprint_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Fingerprint_Args, executable_fingerprint, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Fingerprint_Args, executable_fingerprint_size, 32, 8);

struct PJRT_Executable_GetCostAnalysis_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_properties;
  const PJRT_NamedValue* properties;
};
static_assert(sizeof(PJRT_Executable_GetCostAnalysis_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Executable_GetCostAnalysis_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCostAnalysis_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCostAnalysis_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCostAnalysis_Args, num_properties, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCostAnalysis_Args, properties, 32, 8);

struct PJRT_Executable_GetCompiledMemoryStats_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  int64_t generated_code_size_in_bytes;
  int64_t argument_size_in_bytes;
  int64_t output_size_in_bytes;
  int64_t alias_size_in_bytes;
  int64_t temp_size_in_bytes;
  int64_t host_generated_code_size_in_bytes;
  int64_t host_argument_size_in_bytes;
  int64_t host_output_size_in_bytes;
  int64_t host_alias_size_in_bytes;
  int64_t host_temp_size_in_bytes;
  int64_t peak_memory_in_bytes;
  int64_t total_size_in_bytes;
  int64_t total_allocation_bytes;
  int64_t indefinite_allocations;
  int64_t peak_unpadded_heap_bytes;
};
static_assert(sizeof(PJRT_Executable_GetCompiledMemoryStats_Args) == 144);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, generated_code_size_in_bytes, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, argument_size_in_bytes, 32, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, output_size_in_bytes, 40, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, alias_size_in_bytes, 48, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, temp_size_in_bytes, 56, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, host_generated_code_size_in_bytes, 64, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, host_argument_size_in_bytes, 72, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, host_output_size_in_bytes, 80, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, host_alias_size_in_bytes, 88, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, host_temp_size_in_bytes, 96, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, peak_memory_in_bytes, 104, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, total_size_in_bytes, 112, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, total_allocation_bytes, 120, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, indefinite_allocations, 128, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompiledMemoryStats_Args, peak_unpadded_heap_bytes, 136, 8);

struct PJRT_Executable_OutputElementTypes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  PJRT_Buffer_Type* output_types;
  size_t num_output_types;
};
static_assert(sizeof(PJRT_Executable_OutputElementTypes_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Executable_OutputElementTypes_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputElementTypes_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputElementTypes_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputElementTypes_Args, output_types, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputElementTypes_Args, num_output_types, 32, 8);

struct PJRT_Executable_OutputDimensions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_outputs;
  const int64_t* dims;
  const size_t* dim_sizes;
};
static_assert(sizeof(PJRT_Executable_OutputDimensions_Args) == 48);
PJRT_CHECK_FIELD(PJRT_Executable_OutputDimensions_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputDimensions_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputDimensions_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputDimensions_Args, num_outputs, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputDimensions_Args, dims, 32, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputDimensions_Args, dim_sizes, 40, 8);

struct PJRT_Executable_ParameterMemoryKinds_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_parameters;
  const char* const* memory_kinds;
  const size_t* memory_kind_sizes;
};
static_assert(sizeof(PJRT_Executable_ParameterMemoryKinds_Args) == 48);
PJRT_CHECK_FIELD(PJRT_Executable_ParameterMemoryKinds_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_ParameterMemoryKinds_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_ParameterMemoryKinds_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_ParameterMemoryKinds_Args, num_parameters, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_ParameterMemoryKinds_Args, memory_kinds, 32, 8);
PJRT_CHECK_FIELD(PJRT_Executable_ParameterMemoryKinds_Args, memory_kind_sizes, 40, 8);

struct PJRT_Executable_OutputMemoryKinds_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_outputs;
  const char* const* memory_kinds;
  const size_t* memory_kind_sizes;
};
static_assert(sizeof(PJRT_Executable_OutputMemoryKinds_Args) == 48);
PJRT_CHECK_FIELD(PJRT_Executable_OutputMemoryKinds_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputMemoryKinds_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputMemoryKinds_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputMemoryKinds_Args, num_outputs, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputMemoryKinds_Args, memory_kinds, 32, 8);
PJRT_CHECK_FIELD(PJRT_Executable_OutputMemoryKinds_Args, memory_kind_sizes, 40, 8);

struct PJRT_Executable_Serialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_Executable* executable;
  const char* serialized_bytes;
  size_t serialized_bytes_size;
  PJRT_SerializedExecutable* serialized_executable;
  void (*serialized_executable_deleter)(PJRT_SerializedExecutable* exec);
};
static_assert(sizeof(PJRT_Executable_Serialize_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Executable_Serialize_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Serialize_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Serialize_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Serialize_Args, serialized_bytes, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Serialize_Args, serialized_bytes_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Serialize_Args, serialized_executable, 40, 8);
PJRT_CHECK_FIELD(PJRT_Executable_Serialize_Args, serialized_executable_deleter, 48, 8);

struct PJRT_Executable_GetCompileOptions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  const char* serialized_bytes;
  size_t serialized_bytes_size;
  PJRT_SerializedCompileOptions* serialized_compile_options;
  void (*serialized_compile_options_deleter)(PJRT_SerializedCompileOptions* options);
};
static_assert(sizeof(PJRT_Executable_GetCompileOptions_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompileOptions_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompileOptions_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompileOptions_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompileOptions_Args, serialized_bytes, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompileOptions_Args, serialized_bytes_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompileOptions_Args, serialized_compile_options, 40, 8);
PJRT_CHECK_FIELD(PJRT_Executable_GetCompileOptions_Args, serialized_compile_options_deleter, 48, 8);

struct PJRT_LoadOptions {
  size_t struct_size;
  const int32_t* computation_origin;
  size_t computation_origin_size;
  PJRT_MultiSlice_Config* multi_slice_config;
};
static_assert(sizeof(PJRT_LoadOptions) == 32);
PJRT_CHECK_FIELD(PJRT_LoadOptions, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadOptions, computation_origin, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadOptions, computation_origin_size, 16, 8);
PJRT_CHECK_FIELD(PJRT_LoadOptions, multi_slice_config, 24, 8);

struct PJRT_Executable_DeserializeAndLoad_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  const char* serialized_executable;
  size_t serialized_executable_size;
  PJRT_LoadedExecutable* loaded_executable;
  const char* overridden_serialized_compile_options;
  size_t overridden_serialized_compile_options_size;
  PJRT_LoadOptions* load_options;
};
static_assert(sizeof(PJRT_Executable_DeserializeAndLoad_Args) == 72);
PJRT_CHECK_FIELD(PJRT_Executable_DeserializeAndLoad_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Executable_DeserializeAndLoad_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Executable_DeserializeAndLoad_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Executable_DeserializeAndLoad_Args, serialized_executable, 24, 8);
PJRT_CHECK_FIELD(PJRT_Executable_DeserializeAndLoad_Args, serialized_executable_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_Executable_DeserializeAndLoad_Args, loaded_executable, 40, 8);
PJRT_CHECK_FIELD(PJRT_Executable_DeserializeAndLoad_Args, overridden_serialized_compile_options, 48, 8);
PJRT_CHECK_FIELD(PJRT_Executable_DeserializeAndLoad_Args, overridden_serialized_compile_options_size, 56, 8);
PJRT_CHECK_FIELD(PJRT_Executable_DeserializeAndLoad_Args, load_options, 64, 8);

struct PJRT_LoadedExecutable_Fingerprint_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_LoadedExecutable* executable;
  const char* executable_fingerprint;
  size_t executable_fingerprint_size;
};
static_assert(sizeof(PJRT_LoadedExecutable_Fingerprint_Args) == 40);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Fingerprint_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Fingerprint_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Fingerprint_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Fingerprint_Args, executable_fingerprint, 24, 8);
PJRT_CHECK_FIELD(PJRT_LoadedExecutable_Fingerprint_Args, executable_fingerprint_size, 32, 8);

struct PJRT_Buffer_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
};
static_assert(sizeof(PJRT_Buffer_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Buffer_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Destroy_Args, buffer, 16, 8);

struct PJRT_Buffer_ElementType_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Buffer_Type type;
};
static_assert(sizeof(PJRT_Buffer_ElementType_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_ElementType_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ElementType_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ElementType_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ElementType_Args, type, 24, 4);

struct PJRT_Buffer_Dimensions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  const int64_t* dims;
  size_t num_dims;
};
static_assert(sizeof(PJRT_Buffer_Dimensions_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Buffer_Dimensions_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Dimensions_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Dimensions_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Dimensions_Args, dims, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Dimensions_Args, num_dims, 32, 8);

struct PJRT_Buffer_UnpaddedDimensions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  const int64_t* unpadded_dims;
  size_t num_dims;
};
static_assert(sizeof(PJRT_Buffer_UnpaddedDimensions_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Buffer_UnpaddedDimensions_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_UnpaddedDimensions_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_UnpaddedDimensions_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_UnpaddedDimensions_Args, unpadded_dims, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_UnpaddedDimensions_Args, num_dims, 32, 8);

struct PJRT_Buffer_DynamicDimensionIndices_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  const size_t* dynamic_dim_indices;
  size_t num_dynamic_dims;
};
static_assert(sizeof(PJRT_Buffer_DynamicDimensionIndices_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Buffer_DynamicDimensionIndices_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DynamicDimensionIndices_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DynamicDimensionIndices_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DynamicDimensionIndices_Args, dynamic_dim_indices, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DynamicDimensionIndices_Args, num_dynamic_dims, 32, 8);

struct PJRT_Buffer_GetMemoryLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Buffer_MemoryLayout layout;
};
static_assert(sizeof(PJRT_Buffer_GetMemoryLayout_Args) == 104);
PJRT_CHECK_FIELD(PJRT_Buffer_GetMemoryLayout_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_GetMemoryLayout_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_GetMemoryLayout_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_GetMemoryLayout_Args, layout, 24, 80);

struct PJRT_Buffer_ToHostBuffer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* src;
  PJRT_Buffer_MemoryLayout* host_layout;
  void* dst;
  size_t dst_size;
  PJRT_Event* event;
};
static_assert(sizeof(PJRT_Buffer_ToHostBuffer_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Buffer_ToHostBuffer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ToHostBuffer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ToHostBuffer_Args, src, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ToHostBuffer_Args, host_layout, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ToHostBuffer_Args, dst, 32, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ToHostBuffer_Args, dst_size, 40, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ToHostBuffer_Args, event, 48, 8);

struct PJRT_Buffer_OnDeviceSizeInBytes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  size_t on_device_size_in_bytes;
};
static_assert(sizeof(PJRT_Buffer_OnDeviceSizeInBytes_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_OnDeviceSizeInBytes_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_OnDeviceSizeInBytes_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_OnDeviceSizeInBytes_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_OnDeviceSizeInBytes_Args, on_device_size_in_bytes, 24, 8);

struct PJRT_Buffer_Delete_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
};
static_assert(sizeof(PJRT_Buffer_Delete_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Buffer_Delete_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Delete_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Delete_Args, buffer, 16, 8);

struct PJRT_Buffer_IsDeleted_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  bool is_deleted;
};
static_assert(sizeof(PJRT_Buffer_IsDeleted_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_IsDeleted_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_IsDeleted_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_IsDeleted_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_IsDeleted_Args, is_deleted, 24, 1);

struct PJRT_Buffer_CopyRawToHost_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  void* dst;
  int64_t offset;
  int64_t transfer_size;
  PJRT_Event* event;
};
static_assert(sizeof(PJRT_Buffer_CopyRawToHost_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHost_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHost_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHost_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHost_Args, dst, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHost_Args, offset, 32, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHost_Args, transfer_size, 40, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHost_Args, event, 48, 8);

struct PJRT_Buffer_CopyRawToHostFuture_Callback_Args {
  size_t struct_size;
  void* callback_data;
  PJRT_Error_Code error_code;
  const char* error_message;
  size_t error_message_size;
  void* dst;
};
static_assert(sizeof(PJRT_Buffer_CopyRawToHostFuture_Callback_Args) == 48);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Callback_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Callback_Args, callback_data, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Callback_Args, error_code, 16, 4);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Callback_Args, error_message, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Callback_Args, error_message_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Callback_Args, dst, 40, 8);

struct PJRT_Buffer_CopyRawToHostFuture_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  int64_t offset;
  int64_t transfer_size;
  PJRT_Event* event;
  void* callback_data;
  void (*future_ready_callback)(PJRT_Buffer_CopyRawToHostFuture_Callback_Args* args);
};
static_assert(sizeof(PJRT_Buffer_CopyRawToHostFuture_Args) == 64);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Args, offset, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Args, transfer_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Args, event, 40, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Args, callback_data, 48, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyRawToHostFuture_Args, future_ready_callback, 56, 8);

struct PJRT_Buffer_CopyToDevice_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Device* dst_device;
  PJRT_Buffer* dst_buffer;
};
static_assert(sizeof(PJRT_Buffer_CopyToDevice_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToDevice_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToDevice_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToDevice_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToDevice_Args, dst_device, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToDevice_Args, dst_buffer, 32, 8);

struct PJRT_Buffer_CopyToMemory_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Memory* dst_memory;
  PJRT_Buffer* dst_buffer;
};
static_assert(sizeof(PJRT_Buffer_CopyToMemory_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToMemory_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToMemory_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToMemory_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToMemory_Args, dst_memory, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_CopyToMemory_Args, dst_buffer, 32, 8);

struct PJRT_Buffer_Bitcast_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Buffer_Type element_type;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Buffer_MemoryLayout* device_layout;
  PJRT_Buffer* out_buffer;
};
static_assert(sizeof(PJRT_Buffer_Bitcast_Args) == 64);
PJRT_CHECK_FIELD(PJRT_Buffer_Bitcast_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Bitcast_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Bitcast_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Bitcast_Args, element_type, 24, 4);
PJRT_CHECK_FIELD(PJRT_Buffer_Bitcast_Args, dims, 32, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Bitcast_Args, num_dims, 40, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Bitcast_Args, device_layout, 48, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Bitcast_Args, out_buffer, 56, 8);

struct PJRT_Buffer_IsOnCpu_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  bool is_on_cpu;
};
static_assert(sizeof(PJRT_Buffer_IsOnCpu_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_IsOnCpu_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_IsOnCpu_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_IsOnCpu_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_IsOnCpu_Args, is_on_cpu, 24, 1);

struct PJRT_Buffer_Device_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Device* device;
};
static_assert(sizeof(PJRT_Buffer_Device_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_Device_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Device_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Device_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Device_Args, device, 24, 8);

struct PJRT_Buffer_Memory_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Memory* memory;
};
static_assert(sizeof(PJRT_Buffer_Memory_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_Memory_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Memory_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Memory_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_Memory_Args, memory, 24, 8);

struct PJRT_Buffer_ReadyEvent_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Event* event;
};
static_assert(sizeof(PJRT_Buffer_ReadyEvent_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_ReadyEvent_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ReadyEvent_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ReadyEvent_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_ReadyEvent_Args, event, 24, 8);

struct PJRT_Buffer_UnsafePointer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  uintptr_t buffer_pointer;
};
static_assert(sizeof(PJRT_Buffer_UnsafePointer_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_UnsafePointer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_UnsafePointer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_UnsafePointer_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_UnsafePointer_Args, buffer_pointer, 24, 8);

struct PJRT_Buffer_IncreaseExternalReferenceCount_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
};
static_assert(sizeof(PJRT_Buffer_IncreaseExternalReferenceCount_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Buffer_IncreaseExternalReferenceCount_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_IncreaseExternalReferenceCount_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_IncreaseExternalReferenceCount_Args, buffer, 16, 8);

struct PJRT_Buffer_DecreaseExternalReferenceCount_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
};
static_assert(sizeof(PJRT_Buffer_DecreaseExternalReferenceCount_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Buffer_DecreaseExternalReferenceCount_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DecreaseExternalReferenceCount_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DecreaseExternalReferenceCount_Args, buffer, 16, 8);

struct PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  void* device_memory_ptr;
};
static_assert(sizeof(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, device_memory_ptr, 24, 8);

struct PJRT_Buffer_DonateWithControlDependency_Callback_Args {
  size_t struct_size;
  void* callback_data;
  PJRT_Error_Code error_code;
  const char* error_message;
  size_t error_message_size;
};
static_assert(sizeof(PJRT_Buffer_DonateWithControlDependency_Callback_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Callback_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Callback_Args, callback_data, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Callback_Args, error_code, 16, 4);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Callback_Args, error_message, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Callback_Args, error_message_size, 32, 8);

struct PJRT_Buffer_DonateWithControlDependency_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  void* callback_data;
  void (*dependency_ready_callback)(PJRT_Buffer_DonateWithControlDependency_Callback_Args* args);
  PJRT_Buffer* out_buffer;
};
static_assert(sizeof(PJRT_Buffer_DonateWithControlDependency_Args) == 48);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Args, callback_data, 24, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Args, dependency_ready_callback, 32, 8);
PJRT_CHECK_FIELD(PJRT_Buffer_DonateWithControlDependency_Args, out_buffer, 40, 8);

struct PJRT_CopyToDeviceStream_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;
};
static_assert(sizeof(PJRT_CopyToDeviceStream_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_Destroy_Args, stream, 16, 8);

struct PJRT_CopyToDeviceStream_AddChunk_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;
  PJRT_Chunk* chunk;
  PJRT_Event* transfer_complete;
};
static_assert(sizeof(PJRT_CopyToDeviceStream_AddChunk_Args) == 40);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_AddChunk_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_AddChunk_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_AddChunk_Args, stream, 16, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_AddChunk_Args, chunk, 24, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_AddChunk_Args, transfer_complete, 32, 8);

struct PJRT_CopyToDeviceStream_TotalBytes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;
  int64_t total_bytes;
};
static_assert(sizeof(PJRT_CopyToDeviceStream_TotalBytes_Args) == 32);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_TotalBytes_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_TotalBytes_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_TotalBytes_Args, stream, 16, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_TotalBytes_Args, total_bytes, 24, 8);

struct PJRT_CopyToDeviceStream_GranuleSize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;
  int64_t granule_size_in_bytes;
};
static_assert(sizeof(PJRT_CopyToDeviceStream_GranuleSize_Args) == 32);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_GranuleSize_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_GranuleSize_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_GranuleSize_Args, stream, 16, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_GranuleSize_Args, granule_size_in_bytes, 24, 8);

struct PJRT_CopyToDeviceStream_CurrentBytes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_CopyToDeviceStream* stream;
  int64_t current_bytes;
};
static_assert(sizeof(PJRT_CopyToDeviceStream_CurrentBytes_Args) == 32);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_CurrentBytes_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_CurrentBytes_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_CurrentBytes_Args, stream, 16, 8);
PJRT_CHECK_FIELD(PJRT_CopyToDeviceStream_CurrentBytes_Args, current_bytes, 24, 8);

struct PJRT_TopologyDescription_Create_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* topology_name;
  size_t topology_name_size;
  const PJRT_NamedValue* create_options;
  size_t num_options;
  PJRT_TopologyDescription* topology;
};
static_assert(sizeof(PJRT_TopologyDescription_Create_Args) == 56);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Create_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Create_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Create_Args, topology_name, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Create_Args, topology_name_size, 24, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Create_Args, create_options, 32, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Create_Args, num_options, 40, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Create_Args, topology, 48, 8);

struct PJRT_TopologyDescription_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
};
static_assert(sizeof(PJRT_TopologyDescription_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Destroy_Args, topology, 16, 8);

struct PJRT_TopologyDescription_PlatformVersion_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
  const char* platform_version;
  size_t platform_version_size;
};
static_assert(sizeof(PJRT_TopologyDescription_PlatformVersion_Args) == 40);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformVersion_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformVersion_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformVersion_Args, topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformVersion_Args, platform_version, 24, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformVersion_Args, platform_version_size, 32, 8);

struct PJRT_TopologyDescription_PlatformName_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;
  const char* platform_name;
  size_t platform_name_size;
};
static_assert(sizeof(PJRT_TopologyDescription_PlatformName_Args) == 40);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformName_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformName_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformName_Args, topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformName_Args, platform_name, 24, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_PlatformName_Args, platform_name_size, 32, 8);

struct PJRT_TopologyDescription_GetDeviceDescriptions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;
  PJRT_DeviceDescription* const* descriptions;
  size_t num_descriptions;
};
static_assert(sizeof(PJRT_TopologyDescription_GetDeviceDescriptions_Args) == 40);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetDeviceDescriptions_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetDeviceDescriptions_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetDeviceDescriptions_Args, topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetDeviceDescriptions_Args, descriptions, 24, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetDeviceDescriptions_Args, num_descriptions, 32, 8);

struct PJRT_TopologyDescription_Serialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
  const char* serialized_bytes;
  size_t serialized_bytes_size;
  PJRT_SerializedTopology* serialized_topology;
  void (*serialized_topology_deleter)(PJRT_SerializedTopology* serialized_topology);
};
static_assert(sizeof(PJRT_TopologyDescription_Serialize_Args) == 56);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Serialize_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Serialize_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Serialize_Args, topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Serialize_Args, serialized_bytes, 24, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Serialize_Args, serialized_bytes_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Serialize_Args, serialized_topology, 40, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Serialize_Args, serialized_topology_deleter, 48, 8);

struct PJRT_TopologyDescription_Deserialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* serialized_topology;
  size_t serialized_topology_size;
  PJRT_TopologyDescription* topology;
};
static_assert(sizeof(PJRT_TopologyDescription_Deserialize_Args) == 40);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Deserialize_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Deserialize_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Deserialize_Args, serialized_topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Deserialize_Args, serialized_topology_size, 24, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Deserialize_Args, topology, 32, 8);

struct PJRT_TopologyDescription_Attributes_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology;
  const PJRT_NamedValue* attributes;
  size_t num_attributes;
};
static_assert(sizeof(PJRT_TopologyDescription_Attributes_Args) == 40);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Attributes_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Attributes_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Attributes_Args, topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Attributes_Args, attributes, 24, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Attributes_Args, num_attributes, 32, 8);

struct PJRT_TopologyDescription_Fingerprint_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;
  uint64_t fingerprint;
};
static_assert(sizeof(PJRT_TopologyDescription_Fingerprint_Args) == 32);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Fingerprint_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Fingerprint_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Fingerprint_Args, topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_Fingerprint_Args, fingerprint, 24, 8);

struct PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;
  int memory_space_kind_id;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Buffer_Type element_type;
  const PJRT_Buffer_MemoryLayout* layout;
  const char* serialized_shape;
  size_t serialized_shape_size;
  void (*serialized_shape_deleter)(const char*);
};
static_assert(sizeof(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args) == 88);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, memory_space_kind_id, 24, 4);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, dims, 32, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, num_dims, 40, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, element_type, 48, 4);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, layout, 56, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, serialized_shape, 64, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, serialized_shape_size, 72, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, serialized_shape_deleter, 80, 8);

struct PJRT_TopologyDescription_GetMemorySpaceKindIds_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;
  const int* memory_space_kind_ids;
  size_t num_memory_space_kind_ids;
};
static_assert(sizeof(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args) == 40);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args, topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args, memory_space_kind_ids, 24, 8);
PJRT_CHECK_FIELD(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args, num_memory_space_kind_ids, 32, 8);

struct PJRT_Compile_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_TopologyDescription* topology;
  const PJRT_Program* program;
  const char* compile_options;
  size_t compile_options_size;
  PJRT_Client* client;
  PJRT_Executable* executable;
};
static_assert(sizeof(PJRT_Compile_Args) == 64);
PJRT_CHECK_FIELD(PJRT_Compile_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Compile_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Compile_Args, topology, 16, 8);
PJRT_CHECK_FIELD(PJRT_Compile_Args, program, 24, 8);
PJRT_CHECK_FIELD(PJRT_Compile_Args, compile_options, 32, 8);
PJRT_CHECK_FIELD(PJRT_Compile_Args, compile_options_size, 40, 8);
PJRT_CHECK_FIELD(PJRT_Compile_Args, client, 48, 8);
PJRT_CHECK_FIELD(PJRT_Compile_Args, executable, 56, 8);

struct PJRT_Api {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Api_Version pjrt_api_version;
  void (*PJRT_Error_Destroy)(PJRT_Error_Destroy_Args* args);
  void (*PJRT_Error_Message)(PJRT_Error_Message_Args* args);
  PJRT_Error* (*PJRT_Error_GetCode)(PJRT_Error_GetCode_Args* args);
  PJRT_Error* (*PJRT_Plugin_Initialize)(PJRT_Plugin_Initialize_Args* args);
  PJRT_Error* (*PJRT_Plugin_Attributes)(PJRT_Plugin_Attributes_Args* args);
  PJRT_Error* (*PJRT_Event_Destroy)(PJRT_Event_Destroy_Args* args);
  PJRT_Error* (*PJRT_Event_IsReady)(PJRT_Event_IsReady_Args* args);
  PJRT_Error* (*PJRT_Event_Error)(PJRT_Event_Error_Args* args);
  PJRT_Error* (*PJRT_Event_Await)(PJRT_Event_Await_Args* args);
  PJRT_Error* (*PJRT_Event_OnReady)(PJRT_Event_OnReady_Args* args);
  PJRT_Error* (*PJRT_Client_Create)(PJRT_Client_Create_Args* args);
  PJRT_Error* (*PJRT_Client_Destroy)(PJRT_Client_Destroy_Args* args);
  PJRT_Error* (*PJRT_Client_PlatformName)(PJRT_Client_PlatformName_Args* args);
  PJRT_Error* (*PJRT_Client_ProcessIndex)(PJRT_Client_ProcessIndex_Args* args);
  PJRT_Error* (*PJRT_Client_PlatformVersion)(PJRT_Client_PlatformVersion_Args* args);
  PJRT_Error* (*PJRT_Client_Devices)(PJRT_Client_Devices_Args* args);
  PJRT_Error* (*PJRT_Client_AddressableDevices)(PJRT_Client_AddressableDevices_Args* args);
  PJRT_Error* (*PJRT_Client_LookupDevice)(PJRT_Client_LookupDevice_Args* args);
  PJRT_Error* (*PJRT_Client_LookupAddressableDevice)(PJRT_Client_LookupAddressableDevice_Args* args);
  PJRT_Error* (*PJRT_Client_AddressableMemories)(PJRT_Client_AddressableMemories_Args* args);
  PJRT_Error* (*PJRT_Client_Compile)(PJRT_Client_Compile_Args* args);
  PJRT_Error* (*PJRT_Client_DefaultDeviceAssignment)(PJRT_Client_DefaultDeviceAssignment_Args* args);
  PJRT_Error* (*PJRT_Client_BufferFromHostBuffer)(PJRT_Client_BufferFromHostBuffer_Args* args);
  PJRT_Error* (*PJRT_DeviceDescription_Id)(PJRT_DeviceDescription_Id_Args* args);
  PJRT_Error* (*PJRT_DeviceDescription_ProcessIndex)(PJRT_DeviceDescription_ProcessIndex_Args* args);
  PJRT_Error* (*PJRT_DeviceDescription_Attributes)(PJRT_DeviceDescription_Attributes_Args* args);
  PJRT_Error* (*PJRT_DeviceDescription_Kind)(PJRT_DeviceDescription_Kind_Args* args);
  PJRT_Error* (*PJRT_DeviceDescription_DebugString)(PJRT_DeviceDescription_DebugString_Args* args);
  PJRT_Error* (*PJRT_DeviceDescription_ToString)(PJRT_DeviceDescription_ToString_Args* args);
  PJRT_Error* (*PJRT_Device_GetDescription)(PJRT_Device_GetDescription_Args* args);
  PJRT_Error* (*PJRT_Device_IsAddressable)(PJRT_Device_IsAddressable_Args* args);
  PJRT_Error* (*PJRT_Device_LocalHardwareId)(PJRT_Device_LocalHardwareId_Args* args);
  PJRT_Error* (*PJRT_Device_AddressableMemories)(PJRT_Device_AddressableMemories_Args* args);
  PJRT_Error* (*PJRT_Device_DefaultMemory)(PJRT_Device_DefaultMemory_Args* args);
  PJRT_Error* (*PJRT_Device_MemoryStats)(PJRT_Device_MemoryStats_Args* args);
  PJRT_Error* (*PJRT_Memory_Id)(PJRT_Memory_Id_Args* args);
  PJRT_Error* (*PJRT_Memory_Kind)(PJRT_Memory_Kind_Args* args);
  PJRT_Error* (*PJRT_Memory_DebugString)(PJRT_Memory_DebugString_Args* args);
  PJRT_Error* (*PJRT_Memory_ToString)(PJRT_Memory_ToString_Args* args);
  PJRT_Error* (*PJRT_Memory_AddressableByDevices)(PJRT_Memory_AddressableByDevices_Args* args);
  PJRT_Error* (*PJRT_Executable_Destroy)(PJRT_Executable_Destroy_Args* args);
  PJRT_Error* (*PJRT_Executable_Name)(PJRT_Executable_Name_Args* args);
  PJRT_Error* (*PJRT_Executable_NumReplicas)(PJRT_Executable_NumReplicas_Args* args);
  PJRT_Error* (*PJRT_Executable_NumPartitions)(PJRT_Executable_NumPartitions_Args* args);
  PJRT_Error* (*PJRT_Executable_NumOutputs)(PJRT_Executable_NumOutputs_Args* args);
  PJRT_Error* (*PJRT_Executable_SizeOfGeneratedCodeInBytes)(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args* args);
  PJRT_Error* (*PJRT_Executable_GetCostAnalysis)(PJRT_Executable_GetCostAnalysis_Args* args);
  PJRT_Error* (*PJRT_Executable_OutputMemoryKinds)(PJRT_Executable_OutputMemoryKinds_Args* args);
  PJRT_Error* (*PJRT_Executable_OptimizedProgram)(PJRT_Executable_OptimizedProgram_Args* args);
  PJRT_Error* (*PJRT_Executable_Serialize)(PJRT_Executable_Serialize_Args* args);
  PJRT_Error* (*PJRT_LoadedExecutable_Destroy)(PJRT_LoadedExecutable_Destroy_Args* args);
  PJRT_Error* (*PJRT_LoadedExecutable_GetExecutable)(PJRT_LoadedExecutable_GetExecutable_Args* args);
  PJRT_Error* (*PJRT_LoadedExecutable_AddressableDevices)(PJRT_LoadedExecutable_AddressableDevices_Args* args);
  PJRT_Error* (*PJRT_LoadedExecutable_Delete)(PJRT_LoadedExecutable_Delete_Args* args);
  PJRT_Error* (*PJRT_LoadedExecutable_IsDeleted)(PJRT_LoadedExecutable_IsDeleted_Args* args);
  PJRT_Error* (*PJRT_LoadedExecutable_Execute)(PJRT_LoadedExecutable_Execute_Args* args);
  PJRT_Error* (*PJRT_Executable_DeserializeAndLoad)(PJRT_Executable_DeserializeAndLoad_Args* args);
  PJRT_Error* (*PJRT_LoadedExecutable_Fingerprint)(PJRT_LoadedExecutable_Fingerprint_Args* args);
  PJRT_Error* (*PJRT_Buffer_Destroy)(PJRT_Buffer_Destroy_Args* args);
  PJRT_Error* (*PJRT_Buffer_ElementType)(PJRT_Buffer_ElementType_Args* args);
  PJRT_Error* (*PJRT_Buffer_Dimensions)(PJRT_Buffer_Dimensions_Args* args);
  PJRT_Error* (*PJRT_Buffer_UnpaddedDimensions)(PJRT_Buffer_UnpaddedDimensions_Args* args);
  PJRT_Error* (*PJRT_Buffer_DynamicDimensionIndices)(PJRT_Buffer_DynamicDimensionIndices_Args* args);
  PJRT_Error* (*PJRT_Buffer_GetMemoryLayout)(PJRT_Buffer_GetMemoryLayout_Args* args);
  PJRT_Error* (*PJRT_Buffer_OnDeviceSizeInBytes)(PJRT_Buffer_OnDeviceSizeInBytes_Args* args);
  PJRT_Error* (*PJRT_Buffer_Device)(PJRT_Buffer_Device_Args* args);
  PJRT_Error* (*PJRT_Buffer_Memory)(PJRT_Buffer_Memory_Args* args);
  PJRT_Error* (*PJRT_Buffer_Delete)(PJRT_Buffer_Delete_Args* args);
  PJRT_Error* (*PJRT_Buffer_IsDeleted)(PJRT_Buffer_IsDeleted_Args* args);
  PJRT_Error* (*PJRT_Buffer_CopyToDevice)(PJRT_Buffer_CopyToDevice_Args* args);
  PJRT_Error* (*PJRT_Buffer_ToHostBuffer)(PJRT_Buffer_ToHostBuffer_Args* args);
  PJRT_Error* (*PJRT_Buffer_IsOnCpu)(PJRT_Buffer_IsOnCpu_Args* args);
  PJRT_Error* (*PJRT_Buffer_ReadyEvent)(PJRT_Buffer_ReadyEvent_Args* args);
  PJRT_Error* (*PJRT_Buffer_UnsafePointer)(PJRT_Buffer_UnsafePointer_Args* args);
  PJRT_Error* (*PJRT_Buffer_IncreaseExternalReferenceCount)(PJRT_Buffer_IncreaseExternalReferenceCount_Args* args);
  PJRT_Error* (*PJRT_Buffer_DecreaseExternalReferenceCount)(PJRT_Buffer_DecreaseExternalReferenceCount_Args* args);
  PJRT_Error* (*PJRT_Buffer_OpaqueDeviceMemoryDataPointer)(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args* args);
  PJRT_Error* (*PJRT_CopyToDeviceStream_Destroy)(PJRT_CopyToDeviceStream_Destroy_Args* args);
  PJRT_Error* (*PJRT_CopyToDeviceStream_AddChunk)(PJRT_CopyToDeviceStream_AddChunk_Args* args);
  PJRT_Error* (*PJRT_CopyToDeviceStream_TotalBytes)(PJRT_CopyToDeviceStream_TotalBytes_Args* args);
  PJRT_Error* (*PJRT_CopyToDeviceStream_GranuleSize)(PJRT_CopyToDeviceStream_GranuleSize_Args* args);
  PJRT_Error* (*PJRT_CopyToDeviceStream_CurrentBytes)(PJRT_CopyToDeviceStream_CurrentBytes_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_Create)(PJRT_TopologyDescription_Create_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_Destroy)(PJRT_TopologyDescription_Destroy_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_PlatformName)(PJRT_TopologyDescription_PlatformName_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_PlatformVersion)(PJRT_TopologyDescription_PlatformVersion_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_GetDeviceDescriptions)(PJRT_TopologyDescription_GetDeviceDescriptions_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_Serialize)(PJRT_TopologyDescription_Serialize_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_Attributes)(PJRT_TopologyDescription_Attributes_Args* args);
  PJRT_Error* (*PJRT_Compile)(PJRT_Compile_Args* args);
  PJRT_Error* (*PJRT_Executable_OutputElementTypes)(PJRT_Executable_OutputElementTypes_Args* args);
  PJRT_Error* (*PJRT_Executable_OutputDimensions)(PJRT_Executable_OutputDimensions_Args* args);
  PJRT_Error* (*PJRT_Buffer_CopyToMemory)(PJRT_Buffer_CopyToMemory_Args* args);
  PJRT_Error* (*PJRT_Client_CreateViewOfDeviceBuffer)(PJRT_Client_CreateViewOfDeviceBuffer_Args* args);
  PJRT_Error* (*PJRT_Executable_Fingerprint)(PJRT_Executable_Fingerprint_Args* args);
  PJRT_Error* (*PJRT_Client_TopologyDescription)(PJRT_Client_TopologyDescription_Args* args);
  PJRT_Error* (*PJRT_Executable_GetCompiledMemoryStats)(PJRT_Executable_GetCompiledMemoryStats_Args* args);
  PJRT_Error* (*PJRT_Memory_Kind_Id)(PJRT_Memory_Kind_Id_Args* args);
  PJRT_Error* (*PJRT_ExecuteContext_Create)(PJRT_ExecuteContext_Create_Args* args);
  PJRT_Error* (*PJRT_ExecuteContext_Destroy)(PJRT_ExecuteContext_Destroy_Args* args);
  PJRT_Error* (*PJRT_Buffer_CopyRawToHost)(PJRT_Buffer_CopyRawToHost_Args* args);
  PJRT_Error* (*PJRT_AsyncHostToDeviceTransferManager_Destroy)(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args* args);
  PJRT_Error* (*PJRT_AsyncHostToDeviceTransferManager_TransferData)(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args* args);
  PJRT_Error* (*PJRT_Client_CreateBuffersForAsyncHostToDevice)(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args* args);
  PJRT_Error* (*PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer)(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args* args);
  PJRT_Error* (*PJRT_AsyncHostToDeviceTransferManager_Device)(PJRT_AsyncHostToDeviceTransferManager_Device_Args* args);
  PJRT_Error* (*PJRT_AsyncHostToDeviceTransferManager_BufferCount)(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args* args);
  PJRT_Error* (*PJRT_AsyncHostToDeviceTransferManager_BufferSize)(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args* args);
  PJRT_Error* (*PJRT_AsyncHostToDeviceTransferManager_SetBufferError)(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args* args);
  PJRT_Error* (*PJRT_AsyncHostToDeviceTransferManager_AddMetadata)(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args* args);
  PJRT_Error* (*PJRT_Client_DmaMap)(PJRT_Client_DmaMap_Args* args);
  PJRT_Error* (*PJRT_Client_DmaUnmap)(PJRT_Client_DmaUnmap_Args* args);
  PJRT_Error* (*PJRT_Client_CreateUninitializedBuffer)(PJRT_Client_CreateUninitializedBuffer_Args* args);
  PJRT_Error* (*PJRT_Client_UpdateGlobalProcessInfo)(PJRT_Client_UpdateGlobalProcessInfo_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_Deserialize)(PJRT_TopologyDescription_Deserialize_Args* args);
  PJRT_Error* (*PJRT_Client_CreateAliasBuffer)(PJRT_Client_CreateAliasBuffer_Args* args);
  PJRT_Error* (*PJRT_Client_FulfillAliasBuffer)(PJRT_Client_FulfillAliasBuffer_Args* args);
  PJRT_Error* (*PJRT_LoadedExecutable_GetDeviceAssignment)(PJRT_LoadedExecutable_GetDeviceAssignment_Args* args);
  PJRT_Error* (*PJRT_Client_CreateErrorBuffer)(PJRT_Client_CreateErrorBuffer_Args* args);
  PJRT_Error* (*PJRT_AsyncHostToDeviceTransferManager_TransferLiteral)(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args* args);
  PJRT_Error* (*PJRT_Buffer_CopyRawToHostFuture)(PJRT_Buffer_CopyRawToHostFuture_Args* args);
  PJRT_Error* (*PJRT_Device_PoisonExecution)(PJRT_Device_PoisonExecution_Args* args);
  PJRT_Error* (*PJRT_Device_CreateAsyncTrackingEvent)(PJRT_Device_CreateAsyncTrackingEvent_Args* args);
  PJRT_Error* (*PJRT_AsyncTrackingEvent_Destroy)(PJRT_AsyncTrackingEvent_Destroy_Args* args);
  PJRT_Error* (*PJRT_Executable_GetCompileOptions)(PJRT_Executable_GetCompileOptions_Args* args);
  PJRT_Error* (*PJRT_Buffer_DonateWithControlDependency)(PJRT_Buffer_DonateWithControlDependency_Args* args);
  PJRT_Error* (*PJRT_Event_Create)(PJRT_Event_Create_Args* args);
  PJRT_Error* (*PJRT_Event_Set)(PJRT_Event_Set_Args* args);
  PJRT_Error* (*PJRT_Device_GetAttributes)(PJRT_Device_GetAttributes_Args* args);
  PJRT_Error* (*PJRT_Client_Load)(PJRT_Client_Load_Args* args);
  PJRT_Error* (*PJRT_LoadedExecutable_AddressableDeviceLogicalIds)(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args* args);
  PJRT_Error* (*PJRT_Buffer_Bitcast)(PJRT_Buffer_Bitcast_Args* args);
  PJRT_Error* (*PJRT_Error_ForEachPayload)(PJRT_Error_ForEachPayload_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_Fingerprint)(PJRT_TopologyDescription_Fingerprint_Args* args);
  PJRT_Error* (*PJRT_Executable_ParameterMemoryKinds)(PJRT_Executable_ParameterMemoryKinds_Args* args);
  PJRT_Error* (*PJRT_Device_ClearMemoryStats)(PJRT_Device_ClearMemoryStats_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace)(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args* args);
  PJRT_Error* (*PJRT_TopologyDescription_GetMemorySpaceKindIds)(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args* args);
};
static_assert(sizeof(PJRT_Api) == 1144);
PJRT_CHECK_FIELD(PJRT_Api, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Api, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Api, pjrt_api_version, 16, 24);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Error_Destroy, 40, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Error_Message, 48, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Error_GetCode, 56, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Plugin_Initialize, 64, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Plugin_Attributes, 72, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Event_Destroy, 80, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Event_IsReady, 88, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Event_Error, 96, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Event_Await, 104, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Event_OnReady, 112, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_Create, 120, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_Destroy, 128, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_PlatformName, 136, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_ProcessIndex, 144, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_PlatformVersion, 152, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_Devices, 160, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_AddressableDevices, 168, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_LookupDevice, 176, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_LookupAddressableDevice, 184, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_AddressableMemories, 192, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_Compile, 200, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_DefaultDeviceAssignment, 208, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_BufferFromHostBuffer, 216, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_DeviceDescription_Id, 224, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_DeviceDescription_ProcessIndex, 232, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_DeviceDescription_Attributes, 240, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_DeviceDescription_Kind, 248, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_DeviceDescription_DebugString, 256, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_DeviceDescription_ToString, 264, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_GetDescription, 272, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_IsAddressable, 280, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_LocalHardwareId, 288, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_AddressableMemories, 296, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_DefaultMemory, 304, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_MemoryStats, 312, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Memory_Id, 320, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Memory_Kind, 328, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Memory_DebugString, 336, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Memory_ToString, 344, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Memory_AddressableByDevices, 352, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_Destroy, 360, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_Name, 368, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_NumReplicas, 376, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_NumPartitions, 384, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_NumOutputs, 392, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_SizeOfGeneratedCodeInBytes, 400, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_GetCostAnalysis, 408, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_OutputMemoryKinds, 416, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_OptimizedProgram, 424, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_Serialize, 432, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_LoadedExecutable_Destroy, 440, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_LoadedExecutable_GetExecutable, 448, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_LoadedExecutable_AddressableDevices, 456, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_LoadedExecutable_Delete, 464, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_LoadedExecutable_IsDeleted, 472, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_LoadedExecutable_Execute, 480, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_DeserializeAndLoad, 488, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_LoadedExecutable_Fingerprint, 496, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_Destroy, 504, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_ElementType, 512, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_Dimensions, 520, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_UnpaddedDimensions, 528, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_DynamicDimensionIndices, 536, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_GetMemoryLayout, 544, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_OnDeviceSizeInBytes, 552, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_Device, 560, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_Memory, 568, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_Delete, 576, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_IsDeleted, 584, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_CopyToDevice, 592, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_ToHostBuffer, 600, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_IsOnCpu, 608, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_ReadyEvent, 616, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_UnsafePointer, 624, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_IncreaseExternalReferenceCount, 632, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_DecreaseExternalReferenceCount, 640, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_OpaqueDeviceMemoryDataPointer, 648, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_CopyToDeviceStream_Destroy, 656, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_CopyToDeviceStream_AddChunk, 664, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_CopyToDeviceStream_TotalBytes, 672, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_CopyToDeviceStream_GranuleSize, 680, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_CopyToDeviceStream_CurrentBytes, 688, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_Create, 696, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_Destroy, 704, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_PlatformName, 712, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_PlatformVersion, 720, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_GetDeviceDescriptions, 728, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_Serialize, 736, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_Attributes, 744, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Compile, 752, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_OutputElementTypes, 760, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_OutputDimensions, 768, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_CopyToMemory, 776, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_CreateViewOfDeviceBuffer, 784, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_Fingerprint, 792, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_TopologyDescription, 800, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_GetCompiledMemoryStats, 808, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Memory_Kind_Id, 816, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_ExecuteContext_Create, 824, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_ExecuteContext_Destroy, 832, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_CopyRawToHost, 840, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_Destroy, 848, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_TransferData, 856, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_CreateBuffersForAsyncHostToDevice, 864, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, 872, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_Device, 880, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_BufferCount, 888, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_BufferSize, 896, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_SetBufferError, 904, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_AddMetadata, 912, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_DmaMap, 920, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_DmaUnmap, 928, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_CreateUninitializedBuffer, 936, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_UpdateGlobalProcessInfo, 944, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_Deserialize, 952, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_CreateAliasBuffer, 960, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_FulfillAliasBuffer, 968, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_LoadedExecutable_GetDeviceAssignment, 976, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_CreateErrorBuffer, 984, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncHostToDeviceTransferManager_TransferLiteral, 992, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_CopyRawToHostFuture, 1000, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_PoisonExecution, 1008, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_CreateAsyncTrackingEvent, 1016, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_AsyncTrackingEvent_Destroy, 1024, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_GetCompileOptions, 1032, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_DonateWithControlDependency, 1040, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Event_Create, 1048, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Event_Set, 1056, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_GetAttributes, 1064, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Client_Load, 1072, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_LoadedExecutable_AddressableDeviceLogicalIds, 1080, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Buffer_Bitcast, 1088, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Error_ForEachPayload, 1096, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_Fingerprint, 1104, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Executable_ParameterMemoryKinds, 1112, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_Device_ClearMemoryStats, 1120, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace, 1128, 8);
PJRT_CHECK_FIELD(PJRT_Api, PJRT_TopologyDescription_GetMemorySpaceKindIds, 1136, 8);

struct PJRT_Layouts_MemoryLayout_Destroy_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Layouts_MemoryLayout* layout;
};
static_assert(sizeof(PJRT_Layouts_MemoryLayout_Destroy_Args) == 24);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Destroy_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Destroy_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Destroy_Args, layout, 16, 8);

struct PJRT_Layouts_MemoryLayout_Serialize_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Layouts_MemoryLayout* layout;
  const char* serialized_bytes;
  size_t serialized_bytes_size;
  PJRT_Layouts_SerializedLayout* serialized_layout;
  void (*serialized_layout_deleter)(PJRT_Layouts_SerializedLayout* s_layout);
};
static_assert(sizeof(PJRT_Layouts_MemoryLayout_Serialize_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Serialize_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Serialize_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Serialize_Args, layout, 16, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Serialize_Args, serialized_bytes, 24, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Serialize_Args, serialized_bytes_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Serialize_Args, serialized_layout, 40, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_MemoryLayout_Serialize_Args, serialized_layout_deleter, 48, 8);

struct PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Buffer* buffer;
  PJRT_Layouts_MemoryLayout* layout;
};
static_assert(sizeof(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args) == 32);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, buffer, 16, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, layout, 24, 8);

struct PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Client* client;
  PJRT_Buffer_Type type;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Layouts_MemoryLayout* layout;
};
static_assert(sizeof(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, client, 16, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, type, 24, 4);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, dims, 32, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, num_dims, 40, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, layout, 48, 8);

struct PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_TopologyDescription* topology_description;
  PJRT_Buffer_Type type;
  const int64_t* dims;
  size_t num_dims;
  PJRT_Layouts_MemoryLayout* layout;
};
static_assert(sizeof(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args) == 56);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, topology_description, 16, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, type, 24, 4);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, dims, 32, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, num_dims, 40, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, layout, 48, 8);

struct PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_outputs;
  PJRT_Layouts_MemoryLayout** layouts;
};
static_assert(sizeof(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, num_outputs, 24, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, layouts, 32, 8);

struct PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  size_t num_parameters;
  PJRT_Layouts_MemoryLayout** layouts;
};
static_assert(sizeof(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args) == 40);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args, executable, 16, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args, num_parameters, 24, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args, layouts, 32, 8);

struct PJRT_Layouts_Extension {
  PJRT_Extension_Base base;
  PJRT_Error* (*PJRT_Layouts_MemoryLayout_Destroy)(PJRT_Layouts_MemoryLayout_Destroy_Args* args);
  PJRT_Error* (*PJRT_Layouts_MemoryLayout_Serialize)(PJRT_Layouts_MemoryLayout_Serialize_Args* args);
  PJRT_Error* (*PJRT_Layouts_PJRT_Client_GetDefaultLayout)(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args* args);
  PJRT_Error* (*PJRT_Layouts_PJRT_Buffer_MemoryLayout)(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args* args);
  PJRT_Error* (*PJRT_Layouts_PJRT_Topology_GetDefaultLayout)(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args* args);
  PJRT_Error* (*PJRT_Layouts_PJRT_Executable_GetOutputLayouts)(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args* args);
  PJRT_Error* (*PJRT_Layouts_PJRT_Executable_GetParameterLayouts)(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args* args);
};
static_assert(sizeof(PJRT_Layouts_Extension) == 80);
PJRT_CHECK_FIELD(PJRT_Layouts_Extension, base, 0, 24);
PJRT_CHECK_FIELD(PJRT_Layouts_Extension, PJRT_Layouts_MemoryLayout_Destroy, 24, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_Extension, PJRT_Layouts_MemoryLayout_Serialize, 32, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Client_GetDefaultLayout, 40, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Buffer_MemoryLayout, 48, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Topology_GetDefaultLayout, 56, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Executable_GetOutputLayouts, 64, 8);
PJRT_CHECK_FIELD(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Executable_GetParameterLayouts, 72, 8);

struct PJRT_FFI_Type_Info {
  void (*deleter)(void* object);
  void (*serialize)();
  void (*deserialize)();
};
static_assert(sizeof(PJRT_FFI_Type_Info) == 24);
PJRT_CHECK_FIELD(PJRT_FFI_Type_Info, deleter, 0, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Type_Info, serialize, 8, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Type_Info, deserialize, 16, 8);

struct PJRT_FFI_Type_Register_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const char* type_name;
  size_t type_name_size;
  int64_t type_id;
  PJRT_FFI_Type_Info* type_info;
};
static_assert(sizeof(PJRT_FFI_Type_Register_Args) == 48);
PJRT_CHECK_FIELD(PJRT_FFI_Type_Register_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Type_Register_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Type_Register_Args, type_name, 16, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Type_Register_Args, type_name_size, 24, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Type_Register_Args, type_id, 32, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Type_Register_Args, type_info, 40, 8);

struct PJRT_FFI_UserData {
  int64_t type_id;
  void* data;
};
static_assert(sizeof(PJRT_FFI_UserData) == 16);
PJRT_CHECK_FIELD(PJRT_FFI_UserData, type_id, 0, 8);
PJRT_CHECK_FIELD(PJRT_FFI_UserData, data, 8, 8);

struct PJRT_FFI_UserData_Add_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_ExecuteContext* context;
  PJRT_FFI_UserData user_data;
};
static_assert(sizeof(PJRT_FFI_UserData_Add_Args) == 40);
PJRT_CHECK_FIELD(PJRT_FFI_UserData_Add_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_FFI_UserData_Add_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_FFI_UserData_Add_Args, context, 16, 8);
PJRT_CHECK_FIELD(PJRT_FFI_UserData_Add_Args, user_data, 24, 16);

struct PJRT_FFI_Register_Handler_Args {
  size_t struct_size;
  const char* target_name;
  size_t target_name_size;
  void* handler;
  const char* platform_name;
  size_t platform_name_size;
  PJRT_FFI_Handler_TraitsBits traits;
};
static_assert(sizeof(PJRT_FFI_Register_Handler_Args) == 56);
PJRT_CHECK_FIELD(PJRT_FFI_Register_Handler_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Register_Handler_Args, target_name, 8, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Register_Handler_Args, target_name_size, 16, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Register_Handler_Args, handler, 24, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Register_Handler_Args, platform_name, 32, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Register_Handler_Args, platform_name_size, 40, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Register_Handler_Args, traits, 48, 4);

struct PJRT_FFI_Extension {
  PJRT_Extension_Base base;
  PJRT_Error* (*type_register)(PJRT_FFI_Type_Register_Args* args);
  PJRT_Error* (*user_data_add)(PJRT_FFI_UserData_Add_Args* args);
  PJRT_Error* (*register_handler)(PJRT_FFI_Register_Handler_Args* args);
};
static_assert(sizeof(PJRT_FFI_Extension) == 48);
PJRT_CHECK_FIELD(PJRT_FFI_Extension, base, 0, 24);
PJRT_CHECK_FIELD(PJRT_FFI_Extension, type_register, 24, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Extension, user_data_add, 32, 8);
PJRT_CHECK_FIELD(PJRT_FFI_Extension, register_handler, 40, 8);

struct PJRT_DeviceDescription_MemoryDescriptions_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_DeviceDescription* device_description;
  const PJRT_MemoryDescription* const* memory_descriptions;
  size_t num_memory_descriptions;
  size_t default_memory_index;
};
static_assert(sizeof(PJRT_DeviceDescription_MemoryDescriptions_Args) == 48);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_MemoryDescriptions_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_MemoryDescriptions_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_MemoryDescriptions_Args, device_description, 16, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_MemoryDescriptions_Args, memory_descriptions, 24, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_MemoryDescriptions_Args, num_memory_descriptions, 32, 8);
PJRT_CHECK_FIELD(PJRT_DeviceDescription_MemoryDescriptions_Args, default_memory_index, 40, 8);

struct PJRT_MemoryDescription_Kind_Args {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  const PJRT_MemoryDescription* memory_description;
  const char* kind;
  size_t kind_size;
  int kind_id;
};
static_assert(sizeof(PJRT_MemoryDescription_Kind_Args) == 48);
PJRT_CHECK_FIELD(PJRT_MemoryDescription_Kind_Args, struct_size, 0, 8);
PJRT_CHECK_FIELD(PJRT_MemoryDescription_Kind_Args, extension_start, 8, 8);
PJRT_CHECK_FIELD(PJRT_MemoryDescription_Kind_Args, memory_description, 16, 8);
PJRT_CHECK_FIELD(PJRT_MemoryDescription_Kind_Args, kind, 24, 8);
PJRT_CHECK_FIELD(PJRT_MemoryDescription_Kind_Args, kind_size, 32, 8);
PJRT_CHECK_FIELD(PJRT_MemoryDescription_Kind_Args, kind_id, 40, 4);

struct PJRT_MemoryDescriptions_Extension {
  PJRT_Extension_Base base;
  PJRT_Error* (*PJRT_DeviceDescription_MemoryDescriptions)(PJRT_DeviceDescription_MemoryDescriptions_Args* args);
  PJRT_Error* (*PJRT_MemoryDescription_Kind)(PJRT_MemoryDescription_Kind_Args* args);
};
static_assert(sizeof(PJRT_MemoryDescriptions_Extension) == 40);
PJRT_CHECK_FIELD(PJRT_MemoryDescriptions_Extension, base, 0, 24);
PJRT_CHECK_FIELD(PJRT_MemoryDescriptions_Extension, PJRT_DeviceDescription_MemoryDescriptions, 24, 8);
PJRT_CHECK_FIELD(PJRT_MemoryDescriptions_Extension, PJRT_MemoryDescription_Kind, 32, 8);

}  // extern "C"

namespace pjrt_metal {

template <typename T>
constexpr size_t StructSize();
template <> constexpr size_t StructSize<PJRT_Extension_Base>() { return 24; }
static_assert(offsetof(PJRT_Extension_Base, next) + sizeof(PJRT_Extension_Base::next) == 24);
template <> constexpr size_t StructSize<PJRT_Api_Version>() { return 24; }
static_assert(offsetof(PJRT_Api_Version, minor_version) + sizeof(PJRT_Api_Version::minor_version) == 24);
template <> constexpr size_t StructSize<PJRT_Error_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_Error_Destroy_Args, error) + sizeof(PJRT_Error_Destroy_Args::error) == 24);
template <> constexpr size_t StructSize<PJRT_Error_Message_Args>() { return 40; }
static_assert(offsetof(PJRT_Error_Message_Args, message_size) + sizeof(PJRT_Error_Message_Args::message_size) == 40);
template <> constexpr size_t StructSize<PJRT_Error_FunctionTable>() { return 56; }
static_assert(offsetof(PJRT_Error_FunctionTable, for_each_payload) + sizeof(PJRT_Error_FunctionTable::for_each_payload) == 56);
template <> constexpr size_t StructSize<PJRT_Error>() { return 8; }
static_assert(offsetof(PJRT_Error, vtable) + sizeof(PJRT_Error::vtable) == 8);
template <> constexpr size_t StructSize<PJRT_Error_GetCode_Args>() { return 28; }
static_assert(offsetof(PJRT_Error_GetCode_Args, code) + sizeof(PJRT_Error_GetCode_Args::code) == 28);
template <> constexpr size_t StructSize<PJRT_Error_ForEachPayload_Args>() { return 40; }
static_assert(offsetof(PJRT_Error_ForEachPayload_Args, user_arg) + sizeof(PJRT_Error_ForEachPayload_Args::user_arg) == 40);
template <> constexpr size_t StructSize<PJRT_NamedValue>() { return 56; }
static_assert(offsetof(PJRT_NamedValue, value_size) + sizeof(PJRT_NamedValue::value_size) == 56);
template <> constexpr size_t StructSize<PJRT_Plugin_Initialize_Args>() { return 16; }
static_assert(offsetof(PJRT_Plugin_Initialize_Args, extension_start) + sizeof(PJRT_Plugin_Initialize_Args::extension_start) == 16);
template <> constexpr size_t StructSize<PJRT_Plugin_Attributes_Args>() { return 32; }
static_assert(offsetof(PJRT_Plugin_Attributes_Args, num_attributes) + sizeof(PJRT_Plugin_Attributes_Args::num_attributes) == 32);
template <> constexpr size_t StructSize<PJRT_Event_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_Event_Destroy_Args, event) + sizeof(PJRT_Event_Destroy_Args::event) == 24);
template <> constexpr size_t StructSize<PJRT_Event_IsReady_Args>() { return 25; }
static_assert(offsetof(PJRT_Event_IsReady_Args, is_ready) + sizeof(PJRT_Event_IsReady_Args::is_ready) == 25);
template <> constexpr size_t StructSize<PJRT_Event_Error_Args>() { return 24; }
static_assert(offsetof(PJRT_Event_Error_Args, event) + sizeof(PJRT_Event_Error_Args::event) == 24);
template <> constexpr size_t StructSize<PJRT_Event_Await_Args>() { return 24; }
static_assert(offsetof(PJRT_Event_Await_Args, event) + sizeof(PJRT_Event_Await_Args::event) == 24);
template <> constexpr size_t StructSize<PJRT_Event_OnReady_Args>() { return 40; }
static_assert(offsetof(PJRT_Event_OnReady_Args, user_arg) + sizeof(PJRT_Event_OnReady_Args::user_arg) == 40);
template <> constexpr size_t StructSize<PJRT_Event_Create_Args>() { return 24; }
static_assert(offsetof(PJRT_Event_Create_Args, event) + sizeof(PJRT_Event_Create_Args::event) == 24);
template <> constexpr size_t StructSize<PJRT_Event_Set_Args>() { return 48; }
static_assert(offsetof(PJRT_Event_Set_Args, error_message_size) + sizeof(PJRT_Event_Set_Args::error_message_size) == 48);
template <> constexpr size_t StructSize<PJRT_Memory_FunctionTable>() { return 40; }
static_assert(offsetof(PJRT_Memory_FunctionTable, set_user_data) + sizeof(PJRT_Memory_FunctionTable::set_user_data) == 40);
template <> constexpr size_t StructSize<PJRT_Memory>() { return 8; }
static_assert(offsetof(PJRT_Memory, vtable) + sizeof(PJRT_Memory::vtable) == 8);
template <> constexpr size_t StructSize<PJRT_KeyValueGetCallback_Args>() { return 80; }
static_assert(offsetof(PJRT_KeyValueGetCallback_Args, value_deleter_callback) + sizeof(PJRT_KeyValueGetCallback_Args::value_deleter_callback) == 80);
template <> constexpr size_t StructSize<PJRT_KeyValueTryGetCallback_Args>() { return 72; }
static_assert(offsetof(PJRT_KeyValueTryGetCallback_Args, value_deleter_callback) + sizeof(PJRT_KeyValueTryGetCallback_Args::value_deleter_callback) == 72);
template <> constexpr size_t StructSize<PJRT_KeyValuePutCallback_Args>() { return 64; }
static_assert(offsetof(PJRT_KeyValuePutCallback_Args, user_arg) + sizeof(PJRT_KeyValuePutCallback_Args::user_arg) == 64);
template <> constexpr size_t StructSize<PJRT_Client_Create_Args>() { return 88; }
static_assert(offsetof(PJRT_Client_Create_Args, kv_try_get_user_arg) + sizeof(PJRT_Client_Create_Args::kv_try_get_user_arg) == 88);
template <> constexpr size_t StructSize<PJRT_Client_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_Client_Destroy_Args, client) + sizeof(PJRT_Client_Destroy_Args::client) == 24);
template <> constexpr size_t StructSize<PJRT_Client_PlatformName_Args>() { return 40; }
static_assert(offsetof(PJRT_Client_PlatformName_Args, platform_name_size) + sizeof(PJRT_Client_PlatformName_Args::platform_name_size) == 40);
template <> constexpr size_t StructSize<PJRT_Client_ProcessIndex_Args>() { return 28; }
static_assert(offsetof(PJRT_Client_ProcessIndex_Args, process_index) + sizeof(PJRT_Client_ProcessIndex_Args::process_index) == 28);
template <> constexpr size_t StructSize<PJRT_Client_PlatformVersion_Args>() { return 40; }
static_assert(offsetof(PJRT_Client_PlatformVersion_Args, platform_version_size) + sizeof(PJRT_Client_PlatformVersion_Args::platform_version_size) == 40);
template <> constexpr size_t StructSize<PJRT_Client_TopologyDescription_Args>() { return 32; }
static_assert(offsetof(PJRT_Client_TopologyDescription_Args, topology) + sizeof(PJRT_Client_TopologyDescription_Args::topology) == 32);
template <> constexpr size_t StructSize<PJRT_Client_Devices_Args>() { return 40; }
static_assert(offsetof(PJRT_Client_Devices_Args, num_devices) + sizeof(PJRT_Client_Devices_Args::num_devices) == 40);
template <> constexpr size_t StructSize<PJRT_Client_AddressableDevices_Args>() { return 40; }
static_assert(offsetof(PJRT_Client_AddressableDevices_Args, num_addressable_devices) + sizeof(PJRT_Client_AddressableDevices_Args::num_addressable_devices) == 40);
template <> constexpr size_t StructSize<PJRT_Client_LookupDevice_Args>() { return 40; }
static_assert(offsetof(PJRT_Client_LookupDevice_Args, device) + sizeof(PJRT_Client_LookupDevice_Args::device) == 40);
template <> constexpr size_t StructSize<PJRT_Client_LookupAddressableDevice_Args>() { return 40; }
static_assert(offsetof(PJRT_Client_LookupAddressableDevice_Args, addressable_device) + sizeof(PJRT_Client_LookupAddressableDevice_Args::addressable_device) == 40);
template <> constexpr size_t StructSize<PJRT_ProcessInfo>() { return 48; }
static_assert(offsetof(PJRT_ProcessInfo, error_message_size) + sizeof(PJRT_ProcessInfo::error_message_size) == 48);
template <> constexpr size_t StructSize<PJRT_Client_UpdateGlobalProcessInfo_Args>() { return 40; }
static_assert(offsetof(PJRT_Client_UpdateGlobalProcessInfo_Args, num_process_infos) + sizeof(PJRT_Client_UpdateGlobalProcessInfo_Args::num_process_infos) == 40);
template <> constexpr size_t StructSize<PJRT_Client_AddressableMemories_Args>() { return 40; }
static_assert(offsetof(PJRT_Client_AddressableMemories_Args, num_addressable_memories) + sizeof(PJRT_Client_AddressableMemories_Args::num_addressable_memories) == 40);
template <> constexpr size_t StructSize<PJRT_Program>() { return 48; }
static_assert(offsetof(PJRT_Program, format_size) + sizeof(PJRT_Program::format_size) == 48);
template <> constexpr size_t StructSize<PJRT_Client_Compile_Args>() { return 56; }
static_assert(offsetof(PJRT_Client_Compile_Args, executable) + sizeof(PJRT_Client_Compile_Args::executable) == 56);
template <> constexpr size_t StructSize<PJRT_Client_Load_Args>() { return 56; }
static_assert(offsetof(PJRT_Client_Load_Args, loaded_executable) + sizeof(PJRT_Client_Load_Args::loaded_executable) == 56);
template <> constexpr size_t StructSize<PJRT_Client_DefaultDeviceAssignment_Args>() { return 48; }
static_assert(offsetof(PJRT_Client_DefaultDeviceAssignment_Args, default_assignment) + sizeof(PJRT_Client_DefaultDeviceAssignment_Args::default_assignment) == 48);
template <> constexpr size_t StructSize<PJRT_Client_DmaMap_Args>() { return 40; }
static_assert(offsetof(PJRT_Client_DmaMap_Args, size) + sizeof(PJRT_Client_DmaMap_Args::size) == 40);
template <> constexpr size_t StructSize<PJRT_Client_DmaUnmap_Args>() { return 32; }
static_assert(offsetof(PJRT_Client_DmaUnmap_Args, data) + sizeof(PJRT_Client_DmaUnmap_Args::data) == 32);
template <> constexpr size_t StructSize<PJRT_AsyncHostToDeviceTransferManager_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args, transfer_manager) + sizeof(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args::transfer_manager) == 24);
template <> constexpr size_t StructSize<PJRT_AsyncHostToDeviceTransferManager_TransferData_Args>() { return 72; }
static_assert(offsetof(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args, done_with_h2d_transfer) + sizeof(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args::done_with_h2d_transfer) == 72);
template <> constexpr size_t StructSize<PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args>() { return 40; }
static_assert(offsetof(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args, buffer_out) + sizeof(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args::buffer_out) == 40);
template <> constexpr size_t StructSize<PJRT_AsyncHostToDeviceTransferManager_Device_Args>() { return 32; }
static_assert(offsetof(PJRT_AsyncHostToDeviceTransferManager_Device_Args, device_out) + sizeof(PJRT_AsyncHostToDeviceTransferManager_Device_Args::device_out) == 32);
template <> constexpr size_t StructSize<PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args>() { return 32; }
static_assert(offsetof(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args, buffer_count) + sizeof(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args::buffer_count) == 32);
template <> constexpr size_t StructSize<PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args>() { return 40; }
static_assert(offsetof(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args, buffer_size) + sizeof(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args::buffer_size) == 40);
template <> constexpr size_t StructSize<PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args>() { return 48; }
static_assert(offsetof(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args, error_message_size) + sizeof(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args::error_message_size) == 48);
template <> constexpr size_t StructSize<PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args>() { return 40; }
static_assert(offsetof(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args, num_metadata) + sizeof(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args::num_metadata) == 40);
template <> constexpr size_t StructSize<PJRT_Buffer_MemoryLayout_Tiled>() { return 56; }
static_assert(offsetof(PJRT_Buffer_MemoryLayout_Tiled, num_tiles) + sizeof(PJRT_Buffer_MemoryLayout_Tiled::num_tiles) == 56);
template <> constexpr size_t StructSize<PJRT_Buffer_MemoryLayout_Strides>() { return 32; }
static_assert(offsetof(PJRT_Buffer_MemoryLayout_Strides, num_byte_strides) + sizeof(PJRT_Buffer_MemoryLayout_Strides::num_byte_strides) == 32);
template <> constexpr size_t StructSize<PJRT_Buffer_MemoryLayout>() { return 76; }
static_assert(offsetof(PJRT_Buffer_MemoryLayout, type) + sizeof(PJRT_Buffer_MemoryLayout::type) == 76);
template <> constexpr size_t StructSize<PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args>() { return 80; }
static_assert(offsetof(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args, done_with_h2d_transfer) + sizeof(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args::done_with_h2d_transfer) == 80);
template <> constexpr size_t StructSize<PJRT_Client_CreateUninitializedBuffer_Args>() { return 80; }
static_assert(offsetof(PJRT_Client_CreateUninitializedBuffer_Args, buffer) + sizeof(PJRT_Client_CreateUninitializedBuffer_Args::buffer) == 80);
template <> constexpr size_t StructSize<PJRT_Client_CreateErrorBuffer_Args>() { return 112; }
static_assert(offsetof(PJRT_Client_CreateErrorBuffer_Args, num_payload) + sizeof(PJRT_Client_CreateErrorBuffer_Args::num_payload) == 112);
template <> constexpr size_t StructSize<PJRT_Client_CreateAliasBuffer_Args>() { return 80; }
static_assert(offsetof(PJRT_Client_CreateAliasBuffer_Args, fulfill_alias_buffer_cb) + sizeof(PJRT_Client_CreateAliasBuffer_Args::fulfill_alias_buffer_cb) == 80);
template <> constexpr size_t StructSize<PJRT_Client_FulfillAliasBuffer_Args>() { return 64; }
static_assert(offsetof(PJRT_Client_FulfillAliasBuffer_Args, fulfill_alias_buffer_cb) + sizeof(PJRT_Client_FulfillAliasBuffer_Args::fulfill_alias_buffer_cb) == 64);
template <> constexpr size_t StructSize<PJRT_Client_BufferFromHostBuffer_Args>() { return 120; }
static_assert(offsetof(PJRT_Client_BufferFromHostBuffer_Args, buffer) + sizeof(PJRT_Client_BufferFromHostBuffer_Args::buffer) == 120);
template <> constexpr size_t StructSize<PJRT_Client_CreateViewOfDeviceBuffer_Args>() { return 112; }
static_assert(offsetof(PJRT_Client_CreateViewOfDeviceBuffer_Args, memory) + sizeof(PJRT_Client_CreateViewOfDeviceBuffer_Args::memory) == 112);
template <> constexpr size_t StructSize<PJRT_ShapeSpec>() { return 36; }
static_assert(offsetof(PJRT_ShapeSpec, element_type) + sizeof(PJRT_ShapeSpec::element_type) == 36);
template <> constexpr size_t StructSize<PJRT_Client_CreateBuffersForAsyncHostToDevice_Args>() { return 72; }
static_assert(offsetof(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args, transfer_manager) + sizeof(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args::transfer_manager) == 72);
template <> constexpr size_t StructSize<PJRT_DeviceDescription_Id_Args>() { return 28; }
static_assert(offsetof(PJRT_DeviceDescription_Id_Args, id) + sizeof(PJRT_DeviceDescription_Id_Args::id) == 28);
template <> constexpr size_t StructSize<PJRT_DeviceDescription_ProcessIndex_Args>() { return 28; }
static_assert(offsetof(PJRT_DeviceDescription_ProcessIndex_Args, process_index) + sizeof(PJRT_DeviceDescription_ProcessIndex_Args::process_index) == 28);
template <> constexpr size_t StructSize<PJRT_DeviceDescription_Attributes_Args>() { return 40; }
static_assert(offsetof(PJRT_DeviceDescription_Attributes_Args, attributes) + sizeof(PJRT_DeviceDescription_Attributes_Args::attributes) == 40);
template <> constexpr size_t StructSize<PJRT_DeviceDescription_Kind_Args>() { return 40; }
static_assert(offsetof(PJRT_DeviceDescription_Kind_Args, device_kind_size) + sizeof(PJRT_DeviceDescription_Kind_Args::device_kind_size) == 40);
template <> constexpr size_t StructSize<PJRT_DeviceDescription_DebugString_Args>() { return 40; }
static_assert(offsetof(PJRT_DeviceDescription_DebugString_Args, debug_string_size) + sizeof(PJRT_DeviceDescription_DebugString_Args::debug_string_size) == 40);
template <> constexpr size_t StructSize<PJRT_DeviceDescription_ToString_Args>() { return 40; }
static_assert(offsetof(PJRT_DeviceDescription_ToString_Args, to_string_size) + sizeof(PJRT_DeviceDescription_ToString_Args::to_string_size) == 40);
template <> constexpr size_t StructSize<PJRT_Device_GetDescription_Args>() { return 32; }
static_assert(offsetof(PJRT_Device_GetDescription_Args, device_description) + sizeof(PJRT_Device_GetDescription_Args::device_description) == 32);
template <> constexpr size_t StructSize<PJRT_Device_IsAddressable_Args>() { return 25; }
static_assert(offsetof(PJRT_Device_IsAddressable_Args, is_addressable) + sizeof(PJRT_Device_IsAddressable_Args::is_addressable) == 25);
template <> constexpr size_t StructSize<PJRT_Device_LocalHardwareId_Args>() { return 28; }
static_assert(offsetof(PJRT_Device_LocalHardwareId_Args, local_hardware_id) + sizeof(PJRT_Device_LocalHardwareId_Args::local_hardware_id) == 28);
template <> constexpr size_t StructSize<PJRT_Device_AddressableMemories_Args>() { return 40; }
static_assert(offsetof(PJRT_Device_AddressableMemories_Args, num_memories) + sizeof(PJRT_Device_AddressableMemories_Args::num_memories) == 40);
template <> constexpr size_t StructSize<PJRT_Device_DefaultMemory_Args>() { return 32; }
static_assert(offsetof(PJRT_Device_DefaultMemory_Args, memory) + sizeof(PJRT_Device_DefaultMemory_Args::memory) == 32);
template <> constexpr size_t StructSize<PJRT_Device_MemoryStats_Args>() { return 201; }
static_assert(offsetof(PJRT_Device_MemoryStats_Args, peak_allocated_bytes_is_set) + sizeof(PJRT_Device_MemoryStats_Args::peak_allocated_bytes_is_set) == 201);
template <> constexpr size_t StructSize<PJRT_Device_ClearMemoryStats_Args>() { return 24; }
static_assert(offsetof(PJRT_Device_ClearMemoryStats_Args, device) + sizeof(PJRT_Device_ClearMemoryStats_Args::device) == 24);
template <> constexpr size_t StructSize<PJRT_Device_PoisonExecution_Args>() { return 72; }
static_assert(offsetof(PJRT_Device_PoisonExecution_Args, num_payload) + sizeof(PJRT_Device_PoisonExecution_Args::num_payload) == 72);
template <> constexpr size_t StructSize<PJRT_Device_GetAttributes_Args>() { return 56; }
static_assert(offsetof(PJRT_Device_GetAttributes_Args, attributes_deleter) + sizeof(PJRT_Device_GetAttributes_Args::attributes_deleter) == 56);
template <> constexpr size_t StructSize<PJRT_Device_CreateAsyncTrackingEvent_Args>() { return 48; }
static_assert(offsetof(PJRT_Device_CreateAsyncTrackingEvent_Args, event) + sizeof(PJRT_Device_CreateAsyncTrackingEvent_Args::event) == 48);
template <> constexpr size_t StructSize<PJRT_AsyncTrackingEvent_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_AsyncTrackingEvent_Destroy_Args, event) + sizeof(PJRT_AsyncTrackingEvent_Destroy_Args::event) == 24);
template <> constexpr size_t StructSize<PJRT_Memory_Id_Args>() { return 28; }
static_assert(offsetof(PJRT_Memory_Id_Args, id) + sizeof(PJRT_Memory_Id_Args::id) == 28);
template <> constexpr size_t StructSize<PJRT_Memory_Kind_Args>() { return 40; }
static_assert(offsetof(PJRT_Memory_Kind_Args, kind_size) + sizeof(PJRT_Memory_Kind_Args::kind_size) == 40);
template <> constexpr size_t StructSize<PJRT_Memory_Kind_Id_Args>() { return 28; }
static_assert(offsetof(PJRT_Memory_Kind_Id_Args, kind_id) + sizeof(PJRT_Memory_Kind_Id_Args::kind_id) == 28);
template <> constexpr size_t StructSize<PJRT_Memory_DebugString_Args>() { return 40; }
static_assert(offsetof(PJRT_Memory_DebugString_Args, debug_string_size) + sizeof(PJRT_Memory_DebugString_Args::debug_string_size) == 40);
template <> constexpr size_t StructSize<PJRT_Memory_ToString_Args>() { return 40; }
static_assert(offsetof(PJRT_Memory_ToString_Args, to_string_size) + sizeof(PJRT_Memory_ToString_Args::to_string_size) == 40);
template <> constexpr size_t StructSize<PJRT_Memory_AddressableByDevices_Args>() { return 40; }
static_assert(offsetof(PJRT_Memory_AddressableByDevices_Args, num_devices) + sizeof(PJRT_Memory_AddressableByDevices_Args::num_devices) == 40);
template <> constexpr size_t StructSize<PJRT_ExecuteContext_Create_Args>() { return 24; }
static_assert(offsetof(PJRT_ExecuteContext_Create_Args, context) + sizeof(PJRT_ExecuteContext_Create_Args::context) == 24);
template <> constexpr size_t StructSize<PJRT_ExecuteContext_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_ExecuteContext_Destroy_Args, context) + sizeof(PJRT_ExecuteContext_Destroy_Args::context) == 24);
template <> constexpr size_t StructSize<PJRT_Executable_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_Executable_Destroy_Args, executable) + sizeof(PJRT_Executable_Destroy_Args::executable) == 24);
template <> constexpr size_t StructSize<PJRT_LoadedExecutable_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_LoadedExecutable_Destroy_Args, executable) + sizeof(PJRT_LoadedExecutable_Destroy_Args::executable) == 24);
template <> constexpr size_t StructSize<PJRT_LoadedExecutable_GetExecutable_Args>() { return 32; }
static_assert(offsetof(PJRT_LoadedExecutable_GetExecutable_Args, executable) + sizeof(PJRT_LoadedExecutable_GetExecutable_Args::executable) == 32);
template <> constexpr size_t StructSize<PJRT_LoadedExecutable_GetDeviceAssignment_Args>() { return 56; }
static_assert(offsetof(PJRT_LoadedExecutable_GetDeviceAssignment_Args, serialized_device_assignment_deleter) + sizeof(PJRT_LoadedExecutable_GetDeviceAssignment_Args::serialized_device_assignment_deleter) == 56);
template <> constexpr size_t StructSize<PJRT_Executable_Name_Args>() { return 40; }
static_assert(offsetof(PJRT_Executable_Name_Args, executable_name_size) + sizeof(PJRT_Executable_Name_Args::executable_name_size) == 40);
template <> constexpr size_t StructSize<PJRT_Executable_NumReplicas_Args>() { return 32; }
static_assert(offsetof(PJRT_Executable_NumReplicas_Args, num_replicas) + sizeof(PJRT_Executable_NumReplicas_Args::num_replicas) == 32);
template <> constexpr size_t StructSize<PJRT_Executable_NumPartitions_Args>() { return 32; }
static_assert(offsetof(PJRT_Executable_NumPartitions_Args, num_partitions) + sizeof(PJRT_Executable_NumPartitions_Args::num_partitions) == 32);
template <> constexpr size_t StructSize<PJRT_LogicalDeviceIds>() { return 8; }
static_assert(offsetof(PJRT_LogicalDeviceIds, partition) + sizeof(PJRT_LogicalDeviceIds::partition) == 8);
template <> constexpr size_t StructSize<PJRT_LoadedExecutable_AddressableDevices_Args>() { return 40; }
static_assert(offsetof(PJRT_LoadedExecutable_AddressableDevices_Args, num_addressable_devices) + sizeof(PJRT_LoadedExecutable_AddressableDevices_Args::num_addressable_devices) == 40);
template <> constexpr size_t StructSize<PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args>() { return 40; }
static_assert(offsetof(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args, num_addressable_device_logical_ids) + sizeof(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args::num_addressable_device_logical_ids) == 40);
template <> constexpr size_t StructSize<PJRT_Executable_OptimizedProgram_Args>() { return 32; }
static_assert(offsetof(PJRT_Executable_OptimizedProgram_Args, program) + sizeof(PJRT_Executable_OptimizedProgram_Args::program) == 32);
template <> constexpr size_t StructSize<PJRT_LoadedExecutable_Delete_Args>() { return 24; }
static_assert(offsetof(PJRT_LoadedExecutable_Delete_Args, executable) + sizeof(PJRT_LoadedExecutable_Delete_Args::executable) == 24);
template <> constexpr size_t StructSize<PJRT_LoadedExecutable_IsDeleted_Args>() { return 25; }
static_assert(offsetof(PJRT_LoadedExecutable_IsDeleted_Args, is_deleted) + sizeof(PJRT_LoadedExecutable_IsDeleted_Args::is_deleted) == 25);
template <> constexpr size_t StructSize<PJRT_Chunk>() { return 32; }
static_assert(offsetof(PJRT_Chunk, deleter_arg) + sizeof(PJRT_Chunk::deleter_arg) == 32);
template <> constexpr size_t StructSize<PJRT_SendCallbackInfo>() { return 24; }
static_assert(offsetof(PJRT_SendCallbackInfo, send_callback) + sizeof(PJRT_SendCallbackInfo::send_callback) == 24);
template <> constexpr size_t StructSize<PJRT_RecvCallbackInfo>() { return 24; }
static_assert(offsetof(PJRT_RecvCallbackInfo, recv_callback) + sizeof(PJRT_RecvCallbackInfo::recv_callback) == 24);
template <> constexpr size_t StructSize<PJRT_HloOutputCallbackInfo>() { return 32; }
static_assert(offsetof(PJRT_HloOutputCallbackInfo, num_operands) + sizeof(PJRT_HloOutputCallbackInfo::num_operands) == 32);
template <> constexpr size_t StructSize<PJRT_ExecuteOptions>() { return 144; }
static_assert(offsetof(PJRT_ExecuteOptions, num_hlo_output_callbacks) + sizeof(PJRT_ExecuteOptions::num_hlo_output_callbacks) == 144);
template <> constexpr size_t StructSize<PJRT_LoadedExecutable_Execute_Args>() { return 80; }
static_assert(offsetof(PJRT_LoadedExecutable_Execute_Args, execute_device) + sizeof(PJRT_LoadedExecutable_Execute_Args::execute_device) == 80);
template <> constexpr size_t StructSize<PJRT_Executable_NumOutputs_Args>() { return 32; }
static_assert(offsetof(PJRT_Executable_NumOutputs_Args, num_outputs) + sizeof(PJRT_Executable_NumOutputs_Args::num_outputs) == 32);
template <> constexpr size_t StructSize<PJRT_Executable_SizeOfGeneratedCodeInBytes_Args>() { return 32; }
static_assert(offsetof(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args, size_in_bytes) + sizeof(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args::size_in_bytes) == 32);
template <> constexpr size_t StructSize<PJRT_Executable_Fingerprint_Args>() { return 40; }
static_assert(offsetof(PJRT_Executable_Fingerprint_Args, executable_fingerprint_size) + sizeof(PJRT_Executable_Fingerprint_Args::executable_fingerprint_size) == 40);
template <> constexpr size_t StructSize<PJRT_Executable_GetCostAnalysis_Args>() { return 40; }
static_assert(offsetof(PJRT_Executable_GetCostAnalysis_Args, properties) + sizeof(PJRT_Executable_GetCostAnalysis_Args::properties) == 40);
template <> constexpr size_t StructSize<PJRT_Executable_GetCompiledMemoryStats_Args>() { return 144; }
static_assert(offsetof(PJRT_Executable_GetCompiledMemoryStats_Args, peak_unpadded_heap_bytes) + sizeof(PJRT_Executable_GetCompiledMemoryStats_Args::peak_unpadded_heap_bytes) == 144);
template <> constexpr size_t StructSize<PJRT_Executable_OutputElementTypes_Args>() { return 40; }
static_assert(offsetof(PJRT_Executable_OutputElementTypes_Args, num_output_types) + sizeof(PJRT_Executable_OutputElementTypes_Args::num_output_types) == 40);
template <> constexpr size_t StructSize<PJRT_Executable_OutputDimensions_Args>() { return 48; }
static_assert(offsetof(PJRT_Executable_OutputDimensions_Args, dim_sizes) + sizeof(PJRT_Executable_OutputDimensions_Args::dim_sizes) == 48);
template <> constexpr size_t StructSize<PJRT_Executable_ParameterMemoryKinds_Args>() { return 48; }
static_assert(offsetof(PJRT_Executable_ParameterMemoryKinds_Args, memory_kind_sizes) + sizeof(PJRT_Executable_ParameterMemoryKinds_Args::memory_kind_sizes) == 48);
template <> constexpr size_t StructSize<PJRT_Executable_OutputMemoryKinds_Args>() { return 48; }
static_assert(offsetof(PJRT_Executable_OutputMemoryKinds_Args, memory_kind_sizes) + sizeof(PJRT_Executable_OutputMemoryKinds_Args::memory_kind_sizes) == 48);
template <> constexpr size_t StructSize<PJRT_Executable_Serialize_Args>() { return 56; }
static_assert(offsetof(PJRT_Executable_Serialize_Args, serialized_executable_deleter) + sizeof(PJRT_Executable_Serialize_Args::serialized_executable_deleter) == 56);
template <> constexpr size_t StructSize<PJRT_Executable_GetCompileOptions_Args>() { return 56; }
static_assert(offsetof(PJRT_Executable_GetCompileOptions_Args, serialized_compile_options_deleter) + sizeof(PJRT_Executable_GetCompileOptions_Args::serialized_compile_options_deleter) == 56);
template <> constexpr size_t StructSize<PJRT_LoadOptions>() { return 32; }
static_assert(offsetof(PJRT_LoadOptions, multi_slice_config) + sizeof(PJRT_LoadOptions::multi_slice_config) == 32);
template <> constexpr size_t StructSize<PJRT_Executable_DeserializeAndLoad_Args>() { return 72; }
static_assert(offsetof(PJRT_Executable_DeserializeAndLoad_Args, load_options) + sizeof(PJRT_Executable_DeserializeAndLoad_Args::load_options) == 72);
template <> constexpr size_t StructSize<PJRT_LoadedExecutable_Fingerprint_Args>() { return 40; }
static_assert(offsetof(PJRT_LoadedExecutable_Fingerprint_Args, executable_fingerprint_size) + sizeof(PJRT_LoadedExecutable_Fingerprint_Args::executable_fingerprint_size) == 40);
template <> constexpr size_t StructSize<PJRT_Buffer_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_Buffer_Destroy_Args, buffer) + sizeof(PJRT_Buffer_Destroy_Args::buffer) == 24);
template <> constexpr size_t StructSize<PJRT_Buffer_ElementType_Args>() { return 28; }
static_assert(offsetof(PJRT_Buffer_ElementType_Args, type) + sizeof(PJRT_Buffer_ElementType_Args::type) == 28);
template <> constexpr size_t StructSize<PJRT_Buffer_Dimensions_Args>() { return 40; }
static_assert(offsetof(PJRT_Buffer_Dimensions_Args, num_dims) + sizeof(PJRT_Buffer_Dimensions_Args::num_dims) == 40);
template <> constexpr size_t StructSize<PJRT_Buffer_UnpaddedDimensions_Args>() { return 40; }
static_assert(offsetof(PJRT_Buffer_UnpaddedDimensions_Args, num_dims) + sizeof(PJRT_Buffer_UnpaddedDimensions_Args::num_dims) == 40);
template <> constexpr size_t StructSize<PJRT_Buffer_DynamicDimensionIndices_Args>() { return 40; }
static_assert(offsetof(PJRT_Buffer_DynamicDimensionIndices_Args, num_dynamic_dims) + sizeof(PJRT_Buffer_DynamicDimensionIndices_Args::num_dynamic_dims) == 40);
template <> constexpr size_t StructSize<PJRT_Buffer_GetMemoryLayout_Args>() { return 104; }
static_assert(offsetof(PJRT_Buffer_GetMemoryLayout_Args, layout) + sizeof(PJRT_Buffer_GetMemoryLayout_Args::layout) == 104);
template <> constexpr size_t StructSize<PJRT_Buffer_ToHostBuffer_Args>() { return 56; }
static_assert(offsetof(PJRT_Buffer_ToHostBuffer_Args, event) + sizeof(PJRT_Buffer_ToHostBuffer_Args::event) == 56);
template <> constexpr size_t StructSize<PJRT_Buffer_OnDeviceSizeInBytes_Args>() { return 32; }
static_assert(offsetof(PJRT_Buffer_OnDeviceSizeInBytes_Args, on_device_size_in_bytes) + sizeof(PJRT_Buffer_OnDeviceSizeInBytes_Args::on_device_size_in_bytes) == 32);
template <> constexpr size_t StructSize<PJRT_Buffer_Delete_Args>() { return 24; }
static_assert(offsetof(PJRT_Buffer_Delete_Args, buffer) + sizeof(PJRT_Buffer_Delete_Args::buffer) == 24);
template <> constexpr size_t StructSize<PJRT_Buffer_IsDeleted_Args>() { return 25; }
static_assert(offsetof(PJRT_Buffer_IsDeleted_Args, is_deleted) + sizeof(PJRT_Buffer_IsDeleted_Args::is_deleted) == 25);
template <> constexpr size_t StructSize<PJRT_Buffer_CopyRawToHost_Args>() { return 56; }
static_assert(offsetof(PJRT_Buffer_CopyRawToHost_Args, event) + sizeof(PJRT_Buffer_CopyRawToHost_Args::event) == 56);
template <> constexpr size_t StructSize<PJRT_Buffer_CopyRawToHostFuture_Callback_Args>() { return 48; }
static_assert(offsetof(PJRT_Buffer_CopyRawToHostFuture_Callback_Args, dst) + sizeof(PJRT_Buffer_CopyRawToHostFuture_Callback_Args::dst) == 48);
template <> constexpr size_t StructSize<PJRT_Buffer_CopyRawToHostFuture_Args>() { return 64; }
static_assert(offsetof(PJRT_Buffer_CopyRawToHostFuture_Args, future_ready_callback) + sizeof(PJRT_Buffer_CopyRawToHostFuture_Args::future_ready_callback) == 64);
template <> constexpr size_t StructSize<PJRT_Buffer_CopyToDevice_Args>() { return 40; }
static_assert(offsetof(PJRT_Buffer_CopyToDevice_Args, dst_buffer) + sizeof(PJRT_Buffer_CopyToDevice_Args::dst_buffer) == 40);
template <> constexpr size_t StructSize<PJRT_Buffer_CopyToMemory_Args>() { return 40; }
static_assert(offsetof(PJRT_Buffer_CopyToMemory_Args, dst_buffer) + sizeof(PJRT_Buffer_CopyToMemory_Args::dst_buffer) == 40);
template <> constexpr size_t StructSize<PJRT_Buffer_Bitcast_Args>() { return 64; }
static_assert(offsetof(PJRT_Buffer_Bitcast_Args, out_buffer) + sizeof(PJRT_Buffer_Bitcast_Args::out_buffer) == 64);
template <> constexpr size_t StructSize<PJRT_Buffer_IsOnCpu_Args>() { return 25; }
static_assert(offsetof(PJRT_Buffer_IsOnCpu_Args, is_on_cpu) + sizeof(PJRT_Buffer_IsOnCpu_Args::is_on_cpu) == 25);
template <> constexpr size_t StructSize<PJRT_Buffer_Device_Args>() { return 32; }
static_assert(offsetof(PJRT_Buffer_Device_Args, device) + sizeof(PJRT_Buffer_Device_Args::device) == 32);
template <> constexpr size_t StructSize<PJRT_Buffer_Memory_Args>() { return 32; }
static_assert(offsetof(PJRT_Buffer_Memory_Args, memory) + sizeof(PJRT_Buffer_Memory_Args::memory) == 32);
template <> constexpr size_t StructSize<PJRT_Buffer_ReadyEvent_Args>() { return 32; }
static_assert(offsetof(PJRT_Buffer_ReadyEvent_Args, event) + sizeof(PJRT_Buffer_ReadyEvent_Args::event) == 32);
template <> constexpr size_t StructSize<PJRT_Buffer_UnsafePointer_Args>() { return 32; }
static_assert(offsetof(PJRT_Buffer_UnsafePointer_Args, buffer_pointer) + sizeof(PJRT_Buffer_UnsafePointer_Args::buffer_pointer) == 32);
template <> constexpr size_t StructSize<PJRT_Buffer_IncreaseExternalReferenceCount_Args>() { return 24; }
static_assert(offsetof(PJRT_Buffer_IncreaseExternalReferenceCount_Args, buffer) + sizeof(PJRT_Buffer_IncreaseExternalReferenceCount_Args::buffer) == 24);
template <> constexpr size_t StructSize<PJRT_Buffer_DecreaseExternalReferenceCount_Args>() { return 24; }
static_assert(offsetof(PJRT_Buffer_DecreaseExternalReferenceCount_Args, buffer) + sizeof(PJRT_Buffer_DecreaseExternalReferenceCount_Args::buffer) == 24);
template <> constexpr size_t StructSize<PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args>() { return 32; }
static_assert(offsetof(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, device_memory_ptr) + sizeof(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args::device_memory_ptr) == 32);
template <> constexpr size_t StructSize<PJRT_Buffer_DonateWithControlDependency_Callback_Args>() { return 40; }
static_assert(offsetof(PJRT_Buffer_DonateWithControlDependency_Callback_Args, error_message_size) + sizeof(PJRT_Buffer_DonateWithControlDependency_Callback_Args::error_message_size) == 40);
template <> constexpr size_t StructSize<PJRT_Buffer_DonateWithControlDependency_Args>() { return 48; }
static_assert(offsetof(PJRT_Buffer_DonateWithControlDependency_Args, out_buffer) + sizeof(PJRT_Buffer_DonateWithControlDependency_Args::out_buffer) == 48);
template <> constexpr size_t StructSize<PJRT_CopyToDeviceStream_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_CopyToDeviceStream_Destroy_Args, stream) + sizeof(PJRT_CopyToDeviceStream_Destroy_Args::stream) == 24);
template <> constexpr size_t StructSize<PJRT_CopyToDeviceStream_AddChunk_Args>() { return 40; }
static_assert(offsetof(PJRT_CopyToDeviceStream_AddChunk_Args, transfer_complete) + sizeof(PJRT_CopyToDeviceStream_AddChunk_Args::transfer_complete) == 40);
template <> constexpr size_t StructSize<PJRT_CopyToDeviceStream_TotalBytes_Args>() { return 32; }
static_assert(offsetof(PJRT_CopyToDeviceStream_TotalBytes_Args, total_bytes) + sizeof(PJRT_CopyToDeviceStream_TotalBytes_Args::total_bytes) == 32);
template <> constexpr size_t StructSize<PJRT_CopyToDeviceStream_GranuleSize_Args>() { return 32; }
static_assert(offsetof(PJRT_CopyToDeviceStream_GranuleSize_Args, granule_size_in_bytes) + sizeof(PJRT_CopyToDeviceStream_GranuleSize_Args::granule_size_in_bytes) == 32);
template <> constexpr size_t StructSize<PJRT_CopyToDeviceStream_CurrentBytes_Args>() { return 32; }
static_assert(offsetof(PJRT_CopyToDeviceStream_CurrentBytes_Args, current_bytes) + sizeof(PJRT_CopyToDeviceStream_CurrentBytes_Args::current_bytes) == 32);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_Create_Args>() { return 56; }
static_assert(offsetof(PJRT_TopologyDescription_Create_Args, topology) + sizeof(PJRT_TopologyDescription_Create_Args::topology) == 56);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_TopologyDescription_Destroy_Args, topology) + sizeof(PJRT_TopologyDescription_Destroy_Args::topology) == 24);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_PlatformVersion_Args>() { return 40; }
static_assert(offsetof(PJRT_TopologyDescription_PlatformVersion_Args, platform_version_size) + sizeof(PJRT_TopologyDescription_PlatformVersion_Args::platform_version_size) == 40);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_PlatformName_Args>() { return 40; }
static_assert(offsetof(PJRT_TopologyDescription_PlatformName_Args, platform_name_size) + sizeof(PJRT_TopologyDescription_PlatformName_Args::platform_name_size) == 40);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_GetDeviceDescriptions_Args>() { return 40; }
static_assert(offsetof(PJRT_TopologyDescription_GetDeviceDescriptions_Args, num_descriptions) + sizeof(PJRT_TopologyDescription_GetDeviceDescriptions_Args::num_descriptions) == 40);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_Serialize_Args>() { return 56; }
static_assert(offsetof(PJRT_TopologyDescription_Serialize_Args, serialized_topology_deleter) + sizeof(PJRT_TopologyDescription_Serialize_Args::serialized_topology_deleter) == 56);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_Deserialize_Args>() { return 40; }
static_assert(offsetof(PJRT_TopologyDescription_Deserialize_Args, topology) + sizeof(PJRT_TopologyDescription_Deserialize_Args::topology) == 40);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_Attributes_Args>() { return 40; }
static_assert(offsetof(PJRT_TopologyDescription_Attributes_Args, num_attributes) + sizeof(PJRT_TopologyDescription_Attributes_Args::num_attributes) == 40);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_Fingerprint_Args>() { return 32; }
static_assert(offsetof(PJRT_TopologyDescription_Fingerprint_Args, fingerprint) + sizeof(PJRT_TopologyDescription_Fingerprint_Args::fingerprint) == 32);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args>() { return 88; }
static_assert(offsetof(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args, serialized_shape_deleter) + sizeof(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args::serialized_shape_deleter) == 88);
template <> constexpr size_t StructSize<PJRT_TopologyDescription_GetMemorySpaceKindIds_Args>() { return 40; }
static_assert(offsetof(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args, num_memory_space_kind_ids) + sizeof(PJRT_TopologyDescription_GetMemorySpaceKindIds_Args::num_memory_space_kind_ids) == 40);
template <> constexpr size_t StructSize<PJRT_Compile_Args>() { return 64; }
static_assert(offsetof(PJRT_Compile_Args, executable) + sizeof(PJRT_Compile_Args::executable) == 64);
template <> constexpr size_t StructSize<PJRT_Api>() { return 1144; }
static_assert(offsetof(PJRT_Api, PJRT_TopologyDescription_GetMemorySpaceKindIds) + sizeof(PJRT_Api::PJRT_TopologyDescription_GetMemorySpaceKindIds) == 1144);
template <> constexpr size_t StructSize<PJRT_Layouts_MemoryLayout_Destroy_Args>() { return 24; }
static_assert(offsetof(PJRT_Layouts_MemoryLayout_Destroy_Args, layout) + sizeof(PJRT_Layouts_MemoryLayout_Destroy_Args::layout) == 24);
template <> constexpr size_t StructSize<PJRT_Layouts_MemoryLayout_Serialize_Args>() { return 56; }
static_assert(offsetof(PJRT_Layouts_MemoryLayout_Serialize_Args, serialized_layout_deleter) + sizeof(PJRT_Layouts_MemoryLayout_Serialize_Args::serialized_layout_deleter) == 56);
template <> constexpr size_t StructSize<PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args>() { return 32; }
static_assert(offsetof(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, layout) + sizeof(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args::layout) == 32);
template <> constexpr size_t StructSize<PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args>() { return 56; }
static_assert(offsetof(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, layout) + sizeof(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args::layout) == 56);
template <> constexpr size_t StructSize<PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args>() { return 56; }
static_assert(offsetof(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, layout) + sizeof(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args::layout) == 56);
template <> constexpr size_t StructSize<PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args>() { return 40; }
static_assert(offsetof(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, layouts) + sizeof(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args::layouts) == 40);
template <> constexpr size_t StructSize<PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args>() { return 40; }
static_assert(offsetof(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args, layouts) + sizeof(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args::layouts) == 40);
template <> constexpr size_t StructSize<PJRT_Layouts_Extension>() { return 80; }
static_assert(offsetof(PJRT_Layouts_Extension, PJRT_Layouts_PJRT_Executable_GetParameterLayouts) + sizeof(PJRT_Layouts_Extension::PJRT_Layouts_PJRT_Executable_GetParameterLayouts) == 80);
template <> constexpr size_t StructSize<PJRT_FFI_Type_Info>() { return 24; }
static_assert(offsetof(PJRT_FFI_Type_Info, deserialize) + sizeof(PJRT_FFI_Type_Info::deserialize) == 24);
template <> constexpr size_t StructSize<PJRT_FFI_Type_Register_Args>() { return 48; }
static_assert(offsetof(PJRT_FFI_Type_Register_Args, type_info) + sizeof(PJRT_FFI_Type_Register_Args::type_info) == 48);
template <> constexpr size_t StructSize<PJRT_FFI_UserData>() { return 16; }
static_assert(offsetof(PJRT_FFI_UserData, data) + sizeof(PJRT_FFI_UserData::data) == 16);
template <> constexpr size_t StructSize<PJRT_FFI_UserData_Add_Args>() { return 40; }
static_assert(offsetof(PJRT_FFI_UserData_Add_Args, user_data) + sizeof(PJRT_FFI_UserData_Add_Args::user_data) == 40);
template <> constexpr size_t StructSize<PJRT_FFI_Register_Handler_Args>() { return 52; }
static_assert(offsetof(PJRT_FFI_Register_Handler_Args, traits) + sizeof(PJRT_FFI_Register_Handler_Args::traits) == 52);
template <> constexpr size_t StructSize<PJRT_FFI_Extension>() { return 48; }
static_assert(offsetof(PJRT_FFI_Extension, register_handler) + sizeof(PJRT_FFI_Extension::register_handler) == 48);
template <> constexpr size_t StructSize<PJRT_DeviceDescription_MemoryDescriptions_Args>() { return 48; }
static_assert(offsetof(PJRT_DeviceDescription_MemoryDescriptions_Args, default_memory_index) + sizeof(PJRT_DeviceDescription_MemoryDescriptions_Args::default_memory_index) == 48);
template <> constexpr size_t StructSize<PJRT_MemoryDescription_Kind_Args>() { return 44; }
static_assert(offsetof(PJRT_MemoryDescription_Kind_Args, kind_id) + sizeof(PJRT_MemoryDescription_Kind_Args::kind_id) == 44);
template <> constexpr size_t StructSize<PJRT_MemoryDescriptions_Extension>() { return 40; }
static_assert(offsetof(PJRT_MemoryDescriptions_Extension, PJRT_MemoryDescription_Kind) + sizeof(PJRT_MemoryDescriptions_Extension::PJRT_MemoryDescription_Kind) == 40);

}  // namespace pjrt_metal

#undef PJRT_CHECK_FIELD
