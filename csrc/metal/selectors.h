// Everything that csrc/metal names of Foundation, Metal and MPSGraph: messages with their types, classes, C functions
// and constants, each with the macOS version that introduced it. The typed senders of objc.h are made from these
// tables, so what is not in them cannot be sent; tests compare them with public facts of Apple's API. The C functions
// of the Objective-C runtime and of libdispatch are named where they are looked up (objc.cc, pressure.cc).
#pragma once

#include <cstddef>
#include <cstdint>

struct objc_object;
struct objc_selector;

namespace pjrt_metal::metal {

using Id = objc_object*;
using Sel = objc_selector*;
struct CompletionBlock;  // objc.h: a block by the documented ABI

struct Size {  // MTLSize
  uint64_t width, height, depth;
};
struct OsVersion {  // NSOperatingSystemVersion
  int64_t major, minor, patch;
};

// The oldest macOS that the device runs on. A message that is newer goes through SendIfAvailable.
inline constexpr int kMinimumMacos = 13;

// X(identifier, receiver (a protocol or class; + a class itself), selector, signature, macOS)
// clang-format off
#define PJRT_METAL_MESSAGES(X)                                                                               \
  X(kAlloc, "+NSObject", "alloc", Id(), "10.0")                                                              \
  X(kInit, "NSObject", "init", Id(), "10.0")                                                                 \
  X(kRetain, "NSObject", "retain", Id(), "10.0")                                                             \
  X(kRelease, "NSObject", "release", void(), "10.0")                                                         \
  X(kRespondsToSelector, "NSObject", "respondsToSelector:", bool(Sel), "10.0")                               \
  X(kInitWithBytes, "NSString", "initWithBytes:length:encoding:",                                            \
    Id(const void*, uint64_t, uint64_t), "10.0")                                                             \
  X(kUtf8String, "NSString", "UTF8String", const char*(), "10.0")                                            \
  X(kCount, "NSArray", "count", uint64_t(), "10.0")                                                          \
  X(kObjectAtIndex, "NSArray", "objectAtIndex:", Id(uint64_t), "10.0")                                       \
  X(kObjectForKey, "NSDictionary", "objectForKey:", Id(Id), "10.0")                                          \
  X(kArrayWithObject, "+NSArray", "arrayWithObject:", Id(Id), "10.0")                                        \
  X(kFileUrlWithPath, "+NSURL", "fileURLWithPath:", Id(Id), "10.0")                                          \
  X(kLocalizedDescription, "NSError", "localizedDescription", Id(), "10.0")                                  \
  X(kDomain, "NSError", "domain", Id(), "10.0")                                                              \
  X(kCode, "NSError", "code", int64_t(), "10.0")                                                             \
  X(kUserInfo, "NSError", "userInfo", Id(), "10.0")                                                          \
  X(kProcessInfo, "+NSProcessInfo", "processInfo", Id(), "10.0")                                             \
  X(kOperatingSystemVersion, "NSProcessInfo", "operatingSystemVersion", OsVersion(), "10.10")                \
  X(kOperatingSystemVersionString, "NSProcessInfo", "operatingSystemVersionString", Id(), "10.0")            \
  X(kName, "MTLDevice", "name", Id(), "10.11")                                                               \
  X(kSupportsFamily, "MTLDevice", "supportsFamily:", bool(int64_t), "10.15")                                 \
  X(kRegistryId, "MTLDevice", "registryID", uint64_t(), "10.13")                                             \
  X(kSetMaximizeConcurrentCompilation, "MTLDevice", "setShouldMaximizeConcurrentCompilation:",               \
    void(bool), "13.3")                                                                                      \
  X(kHasUnifiedMemory, "MTLDevice", "hasUnifiedMemory", bool(), "10.15")                                     \
  X(kRecommendedMaxWorkingSetSize, "MTLDevice", "recommendedMaxWorkingSetSize", uint64_t(), "10.12")         \
  X(kMaxBufferLength, "MTLDevice", "maxBufferLength", uint64_t(), "10.14")                                   \
  X(kCurrentAllocatedSize, "MTLDevice", "currentAllocatedSize", uint64_t(), "10.13")                         \
  X(kMaxThreadgroupMemoryLength, "MTLDevice", "maxThreadgroupMemoryLength", uint64_t(), "10.13")             \
  X(kMaxThreadsPerThreadgroup, "MTLDevice", "maxThreadsPerThreadgroup", Size(), "10.11")                     \
  X(kNewCommandQueue, "MTLDevice", "newCommandQueueWithMaxCommandBufferCount:", Id(uint64_t), "10.11") \
  X(kNewBufferWithLength, "MTLDevice", "newBufferWithLength:options:", Id(uint64_t, uint64_t), "10.11")      \
  X(kNewBufferWithBytesNoCopy, "MTLDevice", "newBufferWithBytesNoCopy:length:options:deallocator:",          \
    Id(void*, uint64_t, uint64_t, CompletionBlock*), "10.11")                                                \
  X(kNewResidencySet, "MTLDevice", "newResidencySetWithDescriptor:error:", Id(Id, Id*), "15.0")              \
  X(kNewLibraryWithSource, "MTLDevice", "newLibraryWithSource:options:error:", Id(Id, Id, Id*), "10.11")     \
  X(kNewComputePipelineState, "MTLDevice",                                                                   \
    "newComputePipelineStateWithDescriptor:options:reflection:error:", Id(Id, uint64_t, Id*, Id*), "10.11")  \
  X(kNewBinaryArchive, "MTLDevice", "newBinaryArchiveWithDescriptor:error:", Id(Id, Id*), "11.0")            \
  X(kSetFastMathEnabled, "MTLCompileOptions", "setFastMathEnabled:", void(bool), "10.11")                    \
  X(kSetMathMode, "MTLCompileOptions", "setMathMode:", void(int64_t), "15.0")                                \
  X(kSetMathFloatingPointFunctions, "MTLCompileOptions", "setMathFloatingPointFunctions:",                   \
    void(int64_t), "15.0")                                                                                   \
  X(kSetLanguageVersion, "MTLCompileOptions", "setLanguageVersion:", void(uint64_t), "10.11")                \
  X(kNewFunctionWithName, "MTLLibrary", "newFunctionWithName:", Id(Id), "10.11")                             \
  X(kSetComputeFunction, "MTLComputePipelineDescriptor", "setComputeFunction:", void(Id), "10.11")           \
  X(kSetPipelineLabel, "MTLComputePipelineDescriptor", "setLabel:", void(Id), "10.11")                       \
  X(kSetBinaryArchives, "MTLComputePipelineDescriptor", "setBinaryArchives:", void(Id), "11.0")              \
  X(kSetMaxTotalThreads, "MTLComputePipelineDescriptor", "setMaxTotalThreadsPerThreadgroup:",                \
    void(uint64_t), "10.14")                                                                                 \
  X(kSetUrl, "MTLBinaryArchiveDescriptor", "setUrl:", void(Id), "11.0")                                      \
  X(kAddComputePipelineFunctions, "MTLBinaryArchive", "addComputePipelineFunctionsWithDescriptor:error:",    \
    bool(Id, Id*), "11.0")                                                                                   \
  X(kSerializeToUrl, "MTLBinaryArchive", "serializeToURL:error:", bool(Id, Id*), "11.0")                     \
  X(kMaxTotalThreadsPerThreadgroup, "MTLComputePipelineState", "maxTotalThreadsPerThreadgroup",              \
    uint64_t(), "10.11")                                                                                     \
  X(kThreadExecutionWidth, "MTLComputePipelineState", "threadExecutionWidth", uint64_t(), "10.11")           \
  X(kContents, "MTLBuffer", "contents", void*(), "10.11")                                                    \
  X(kSetErrorOptions, "MTLCommandBufferDescriptor", "setErrorOptions:", void(uint64_t), "11.0")              \
  X(kCommandBufferWithDescriptor, "MTLCommandQueue", "commandBufferWithDescriptor:", Id(Id), "11.0")         \
  X(kAddAllocation, "MTLResidencySet", "addAllocation:", void(Id), "15.0")                                   \
  X(kRemoveAllocation, "MTLResidencySet", "removeAllocation:", void(Id), "15.0")                             \
  X(kCommitResidency, "MTLResidencySet", "commit", void(), "15.0")                                           \
  X(kRequestResidency, "MTLResidencySet", "requestResidency", void(), "15.0")                                \
  X(kEndResidency, "MTLResidencySet", "endResidency", void(), "15.0")                                        \
  X(kAddResidencySet, "MTLCommandQueue", "addResidencySet:", void(Id), "15.0")                               \
  X(kRemoveResidencySet, "MTLCommandQueue", "removeResidencySet:", void(Id), "15.0")                         \
  X(kSharedCaptureManager, "+MTLCaptureManager", "sharedCaptureManager", Id(), "10.13")                      \
  X(kSupportsDestination, "MTLCaptureManager", "supportsDestination:", bool(int64_t), "10.15")               \
  X(kStartCapture, "MTLCaptureManager", "startCaptureWithDescriptor:error:", bool(Id, Id*), "10.15")         \
  X(kStopCapture, "MTLCaptureManager", "stopCapture", void(), "10.13")                                       \
  X(kSetCaptureObject, "MTLCaptureDescriptor", "setCaptureObject:", void(Id), "10.15")                       \
  X(kSetCaptureDestination, "MTLCaptureDescriptor", "setDestination:", void(int64_t), "10.15")               \
  X(kSetCaptureUrl, "MTLCaptureDescriptor", "setOutputURL:", void(Id), "10.15")                              \
  X(kSetQueueLabel, "MTLCommandQueue", "setLabel:", void(Id), "10.11")                                       \
  X(kComputeCommandEncoder, "MTLCommandBuffer", "computeCommandEncoderWithDispatchType:",                    \
    Id(uint64_t), "10.14")                                                                                   \
  X(kAddCompletedHandler, "MTLCommandBuffer", "addCompletedHandler:", void(CompletionBlock*), "10.11")       \
  X(kCommit, "MTLCommandBuffer", "commit", void(), "10.11")                                                  \
  X(kStatus, "MTLCommandBuffer", "status", uint64_t(), "10.11")                                              \
  X(kError, "MTLCommandBuffer", "error", Id(), "10.11")                                                      \
  X(kGpuStartTime, "MTLCommandBuffer", "GPUStartTime", double(), "10.15")                                    \
  X(kGpuEndTime, "MTLCommandBuffer", "GPUEndTime", double(), "10.15")                                        \
  X(kLabel, "MTLCommandBufferEncoderInfo", "label", Id(), "11.0")                                            \
  X(kErrorState, "MTLCommandBufferEncoderInfo", "errorState", int64_t(), "11.0")                             \
  X(kEndEncoding, "MTLCommandEncoder", "endEncoding", void(), "10.11")                                       \
  X(kSetLabel, "MTLCommandEncoder", "setLabel:", void(Id), "10.11")                                          \
  X(kSetComputePipelineState, "MTLComputeCommandEncoder", "setComputePipelineState:", void(Id), "10.11")     \
  X(kSetBuffer, "MTLComputeCommandEncoder", "setBuffer:offset:atIndex:",                                     \
    void(Id, uint64_t, uint64_t), "10.11")                                                                   \
  X(kSetBufferOffset, "MTLComputeCommandEncoder", "setBufferOffset:atIndex:", void(uint64_t, uint64_t), "10.11") \
  X(kSetBytes, "MTLComputeCommandEncoder", "setBytes:length:atIndex:",                                       \
    void(const void*, uint64_t, uint64_t), "10.11")                                                          \
  X(kDispatchThreads, "MTLComputeCommandEncoder", "dispatchThreads:threadsPerThreadgroup:",                  \
    void(Size, Size), "10.13")                                                                               \
  X(kMemoryBarrier, "MTLComputeCommandEncoder", "memoryBarrierWithScope:", void(uint64_t), "10.14")          \
  X(kArrayWithCapacity, "+NSMutableArray", "arrayWithCapacity:", Id(uint64_t), "10.0")                       \
  X(kAddObject, "NSMutableArray", "addObject:", void(Id), "10.0")                                            \
  X(kDictionaryWithCapacity, "+NSMutableDictionary", "dictionaryWithCapacity:", Id(uint64_t), "10.0")        \
  X(kSetObjectForKey, "NSMutableDictionary", "setObject:forKey:", void(Id, Id), "10.0")                      \
  X(kNumberWithLongLong, "+NSNumber", "numberWithLongLong:", Id(int64_t), "10.0")                            \
  X(kGraphDevice, "+MPSGraphDevice", "deviceWithMTLDevice:", Id(Id), "11.0")                                 \
  X(kPlaceholder, "MPSGraph", "placeholderWithShape:dataType:name:", Id(Id, uint32_t, Id), "11.0")           \
  X(kTransposeTensor, "MPSGraph", "transposeTensor:permutation:name:", Id(Id, Id, Id), "13.0")               \
  X(kReshapeTensor, "MPSGraph", "reshapeTensor:withShape:name:", Id(Id, Id, Id), "11.0")                     \
  X(kMatrixMultiplication, "MPSGraph", "matrixMultiplicationWithPrimaryTensor:secondaryTensor:name:",        \
    Id(Id, Id, Id), "11.0")                                                                                  \
  X(kConvolutionDescriptor, "+MPSGraphConvolution2DOpDescriptor",                                            \
    "descriptorWithStrideInX:strideInY:dilationRateInX:dilationRateInY:groups:"                              \
    "paddingLeft:paddingRight:paddingTop:paddingBottom:paddingStyle:dataLayout:weightsLayout:",              \
    Id(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,   \
       uint64_t, uint64_t), "11.0")                                                                          \
  X(kConvolution, "MPSGraph", "convolution2DWithSourceTensor:weightsTensor:descriptor:name:",                \
    Id(Id, Id, Id, Id), "11.0")                                                                              \
  X(kDataGradient, "MPSGraph",                                                                               \
    "convolution2DDataGradientWithIncomingGradientTensor:weightsTensor:outputShape:"                         \
    "forwardConvolutionDescriptor:name:", Id(Id, Id, Id, Id, Id), "11.0")                                    \
  X(kWeightsGradient, "MPSGraph",                                                                            \
    "convolution2DWeightsGradientWithIncomingGradientTensor:sourceTensor:outputShape:"                       \
    "forwardConvolutionDescriptor:name:", Id(Id, Id, Id, Id, Id), "11.0")                                    \
  X(kInitShapedType, "MPSGraphShapedType", "initWithShape:dataType:", Id(Id, uint32_t), "11.0")              \
  X(kSetOptimizationLevel, "MPSGraphCompilationDescriptor", "setOptimizationLevel:", void(uint64_t), "12.3") \
  X(kCompileGraph, "MPSGraph",                                                                               \
    "compileWithDevice:feeds:targetTensors:targetOperations:compilationDescriptor:",                         \
    Id(Id, Id, Id, Id, Id), "12.0")                                                                          \
  X(kSetGraphCompletionHandler, "MPSGraphExecutableExecutionDescriptor", "setCompletionHandler:",            \
    void(CompletionBlock*), "12.0")                                                                          \
  X(kFeedTensors, "MPSGraphExecutable", "feedTensors", Id(), "12.0")                                         \
  X(kEncodeGraph, "MPSGraphExecutable",                                                                      \
    "encodeToCommandBuffer:inputsArray:resultsArray:executionDescriptor:", Id(Id, Id, Id, Id), "12.0")       \
  X(kInitTensorDataBuffer, "MPSGraphTensorData", "initWithMTLBuffer:shape:dataType:",                        \
    Id(Id, Id, uint32_t), "11.0")                                                                            \
  X(kInitTensorDataArray, "MPSGraphTensorData", "initWithMPSNDArray:", Id(Id), "11.0")                       \
  X(kArrayDescriptor, "+MPSNDArrayDescriptor", "descriptorWithDataType:shape:", Id(uint32_t, Id), "10.15")   \
  X(kSetPreferPackedRows, "MPSNDArrayDescriptor", "setPreferPackedRows:", void(bool), "15.0")                \
  X(kInitArrayBuffer, "MPSNDArray", "initWithBuffer:offset:descriptor:", Id(Id, uint64_t, Id), "15.0")       \
  X(kMpsCommandBuffer, "+MPSCommandBuffer", "commandBufferWithCommandBuffer:", Id(Id), "10.15")              \
  X(kRootCommandBuffer, "MPSCommandBuffer", "rootCommandBuffer", Id(), "10.15")

// X(identifier, class, macOS)
#define PJRT_METAL_CLASSES(X)                                                 \
  X(kNSAutoreleasePool, "NSAutoreleasePool", "10.0")                          \
  X(kNSString, "NSString", "10.0")                                            \
  X(kNSProcessInfo, "NSProcessInfo", "10.0")                                  \
  X(kNSArray, "NSArray", "10.0")                                              \
  X(kNSMutableArray, "NSMutableArray", "10.0")                                \
  X(kNSMutableDictionary, "NSMutableDictionary", "10.0")                      \
  X(kNSNumber, "NSNumber", "10.0")                                            \
  X(kMTLCommandBufferDescriptor, "MTLCommandBufferDescriptor", "11.0")        \
  X(kNSURL, "NSURL", "10.0")                                                  \
  X(kMTLCompileOptions, "MTLCompileOptions", "10.11")                         \
  X(kMTLComputePipelineDescriptor, "MTLComputePipelineDescriptor", "10.11")   \
  X(kMTLBinaryArchiveDescriptor, "MTLBinaryArchiveDescriptor", "11.0")        \
  X(kMTLResidencySetDescriptor, "MTLResidencySetDescriptor", "15.0")          \
  X(kMTLCaptureManager, "MTLCaptureManager", "10.13")                         \
  X(kMTLCaptureDescriptor, "MTLCaptureDescriptor", "10.15")

// Of MetalPerformanceShaders and MetalPerformanceShadersGraph, which are loaded when the first library call is prepared
// (GetGraphRuntime).
#define PJRT_METAL_GRAPH_CLASSES(X)                                                          \
  X(kMPSGraph, "MPSGraph", "11.0")                                                           \
  X(kMPSGraphDevice, "MPSGraphDevice", "11.0")                                               \
  X(kMPSGraphShapedType, "MPSGraphShapedType", "11.0")                                       \
  X(kMPSGraphTensorData, "MPSGraphTensorData", "11.0")                                       \
  X(kMPSGraphCompilationDescriptor, "MPSGraphCompilationDescriptor", "12.0")                 \
  X(kMPSGraphExecutableExecutionDescriptor, "MPSGraphExecutableExecutionDescriptor", "12.0") \
  X(kMPSGraphConvolution2DOpDescriptor, "MPSGraphConvolution2DOpDescriptor", "11.0")         \
  X(kMPSNDArray, "MPSNDArray", "10.15")                                                      \
  X(kMPSNDArrayDescriptor, "MPSNDArrayDescriptor", "10.15")                                  \
  X(kMPSCommandBuffer, "MPSCommandBuffer", "10.15")

// X(identifier, Apple's name, type, value, macOS)
#define PJRT_METAL_CONSTANTS(X)                                                                              \
  X(kUtf8Encoding, "NSUTF8StringEncoding", uint64_t, 4, "10.0")                                              \
  X(kStorageModeShared, "MTLResourceStorageModeShared", uint64_t, 0, "10.11")                                \
  X(kDispatchTypeConcurrent, "MTLDispatchTypeConcurrent", uint64_t, 1, "10.14")                              \
  X(kBarrierScopeBuffers, "MTLBarrierScopeBuffers", uint64_t, 1, "10.14")                                    \
  X(kEncoderExecutionStatus, "MTLCommandBufferErrorOptionEncoderExecutionStatus", uint64_t, 1, "11.0")       \
  X(kEncoderAffected, "MTLCommandEncoderErrorStateAffected", int64_t, 2, "11.0")                             \
  X(kEncoderFaulted, "MTLCommandEncoderErrorStateFaulted", int64_t, 4, "11.0")                               \
  X(kPipelineOptionNone, "MTLPipelineOptionNone", uint64_t, 0, "10.11")                                      \
  X(kFailOnBinaryArchiveMiss, "MTLPipelineOptionFailOnBinaryArchiveMiss", uint64_t, 1 << 2, "11.0")          \
  X(kCaptureToDocument, "MTLCaptureDestinationGPUTraceDocument", int64_t, 2, "10.15")                        \
  X(kStatusError, "MTLCommandBufferStatusError", uint64_t, 5, "10.11")                                       \
  X(kErrorTimeout, "MTLCommandBufferErrorTimeout", int64_t, 2, "10.11")                                      \
  X(kErrorAccessRevoked, "MTLCommandBufferErrorAccessRevoked", int64_t, 4, "10.11")                          \
  X(kErrorOutOfMemory, "MTLCommandBufferErrorOutOfMemory", int64_t, 8, "10.11")                              \
  X(kErrorDeviceRemoved, "MTLCommandBufferErrorDeviceRemoved", int64_t, 11, "10.13")                         \
  X(kMathModeSafe, "MTLMathModeSafe", int64_t, 0, "15.0")                                                    \
  X(kMathFunctionsPrecise, "MTLMathFloatingPointFunctionsPrecise", int64_t, 1, "15.0")                       \
  X(kLanguageVersion3_0, "MTLLanguageVersion3_0", uint64_t, (3 << 16) + 0, "13.0")                           \
  X(kLanguageVersion3_1, "MTLLanguageVersion3_1", uint64_t, (3 << 16) + 1, "14.0")                           \
  X(kLanguageVersion3_2, "MTLLanguageVersion3_2", uint64_t, (3 << 16) + 2, "15.0")                           \
  X(kLanguageVersion4_0, "MTLLanguageVersion4_0", uint64_t, (4 << 16) + 0, "26.0")                           \
  X(kFamilyApple7, "MTLGPUFamilyApple7", int64_t, 1007, "10.15")                                             \
  X(kFamilyApple8, "MTLGPUFamilyApple8", int64_t, 1008, "10.15")                                             \
  X(kFamilyApple9, "MTLGPUFamilyApple9", int64_t, 1009, "10.15")                                             \
  X(kMpsFloat32, "MPSDataTypeFloat32", uint32_t, 0x10000020, "10.13")                                        \
  X(kMpsFloat16, "MPSDataTypeFloat16", uint32_t, 0x10000010, "10.13")                                        \
  X(kMpsBfloat16, "MPSDataTypeBFloat16", uint32_t, 0x90000010, "14.0")                                       \
  X(kGraphPaddingExplicit, "MPSGraphPaddingStyleExplicit", uint64_t, 0, "11.0")                              \
  X(kGraphNchw, "MPSGraphTensorNamedDataLayoutNCHW", uint64_t, 0, "11.0")                                    \
  X(kGraphNhwc, "MPSGraphTensorNamedDataLayoutNHWC", uint64_t, 1, "11.0")                                    \
  X(kGraphOihw, "MPSGraphTensorNamedDataLayoutOIHW", uint64_t, 2, "11.0")                                    \
  X(kGraphHwio, "MPSGraphTensorNamedDataLayoutHWIO", uint64_t, 3, "11.0")                                    \
  X(kGraphOptimizationLevel0, "MPSGraphOptimizationLevel0", uint64_t, 0, "12.3")

// C functions and data of Metal's: X(identifier, Apple's name, macOS).
#define PJRT_METAL_SYMBOLS(X)                                                  \
  X(kCopyAllDevices, "MTLCopyAllDevices", "10.11")                             \
  X(kCreateSystemDefaultDevice, "MTLCreateSystemDefaultDevice", "10.11")       \
  X(kEncoderInfoErrorKey, "MTLCommandBufferEncoderInfoErrorKey", "11.0")
// clang-format on

enum class Message : size_t {
#define X(identifier, ...) identifier,
  PJRT_METAL_MESSAGES(X)
#undef X
      kEnd
};
enum class Class : size_t {
#define X(identifier, ...) identifier,
  PJRT_METAL_CLASSES(X)
#undef X
      kEnd
};
enum class GraphClass : size_t {
#define X(identifier, ...) identifier,
  PJRT_METAL_GRAPH_CLASSES(X)
#undef X
      kEnd
};
inline constexpr size_t kMessages = static_cast<size_t>(Message::kEnd);
inline constexpr size_t kClasses = static_cast<size_t>(Class::kEnd);
inline constexpr size_t kGraphClasses = static_cast<size_t>(GraphClass::kEnd);

#define X(identifier, name, type, value, macos) inline constexpr type identifier = value;
PJRT_METAL_CONSTANTS(X)
#undef X
#define X(identifier, name, macos) inline constexpr const char* identifier = name;
PJRT_METAL_SYMBOLS(X)
#undef X

template <Message>
struct SignatureOf;
#define X(identifier, receiver, selector, signature, macos) \
  template <>                                               \
  struct SignatureOf<Message::identifier> {                 \
    using type = signature;                                 \
  };
PJRT_METAL_MESSAGES(X)
#undef X

struct MessageFacts {
  const char* receiver;
  const char* selector;
  const char* macos;
};
inline constexpr MessageFacts kMessageFacts[] = {
#define X(identifier, receiver, selector, signature, macos) {receiver, selector, macos},
    PJRT_METAL_MESSAGES(X)
#undef X
};
struct ClassFacts {
  const char* name;
  const char* macos;
};
inline constexpr ClassFacts kClassFacts[] = {
#define X(identifier, name, macos) {name, macos},
    PJRT_METAL_CLASSES(X)
#undef X
};
inline constexpr const char* kGraphClassNames[] = {
#define X(identifier, name, macos) name,
    PJRT_METAL_GRAPH_CLASSES(X)
#undef X
};

// Whether the oldest supported macOS, kMinimumMacos.0, has what came with `macos`, such as "13.3".
constexpr bool AlwaysThere(const char* macos) {
  int version[2] = {0, 0};
  for (int& part : version) {
    for (; *macos >= '0' && *macos <= '9'; ++macos) part = part * 10 + (*macos - '0');
    if (*macos == '.') ++macos;
  }
  return version[0] < kMinimumMacos || (version[0] == kMinimumMacos && version[1] == 0);
}

}  // namespace pjrt_metal::metal
