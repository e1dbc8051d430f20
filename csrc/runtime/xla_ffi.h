// The C ABI of XLA's typed FFI (major version 0): what a handler of a custom call is given and may call back. Stated
// from the sizes and offsets of jaxlib's headers, against which tests/host/test_ffi_abi.py checks every struct.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pjrt_metal::xla_ffi {

inline constexpr int kMajor = 0;
inline constexpr int kMinor = 5;  // of the newest function in Api

struct Error;    // opaque to handlers
struct Future;   // opaque to handlers
struct Context;  // opaque to handlers

struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};
inline constexpr int kMetadataExtension = 1;

struct Version {
  size_t struct_size;
  Extension* extension;
  int major, minor;
};

struct Buffer {
  size_t struct_size;
  Extension* extension;
  int dtype;
  void* data;
  int64_t rank;
  const int64_t* dims;
};

struct Text {
  const char* data;
  size_t size;
};

struct Scalar {
  int dtype;
  void* value;
};

struct Array {
  int dtype;
  size_t count;
  void* data;
};

struct TypeId {
  int64_t value;
};

struct TypeInfo {
  size_t struct_size;
  Extension* extension;
  void (*deleter)(void* object);
};

inline constexpr int kBuffer = 1;  // the one kind of argument and of result
enum AttributeKind : int { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };

// Operands, and results alike.
struct Arguments {
  size_t struct_size;
  Extension* extension;
  int64_t count;
  const int* kinds;
  void* const* values;
};

// Sorted by name; values point to Array, Attributes, Scalar or Text.
struct Attributes {
  size_t struct_size;
  Extension* extension;
  int64_t count;
  const int* kinds;
  const Text* const* names;
  void* const* values;
};

enum Stage : int { kInstantiate = 0, kPrepare = 1, kInitialize = 2, kExecute = 3 };
inline constexpr int kStages = 4;

struct Api;

struct CallFrame {
  size_t struct_size;  // through `attributes`: handlers compare it for equality
  Extension* extension;
  const Api* api;
  Context* context;
  int stage;
  Arguments operands, results;
  Attributes attributes;
  Future* future;  // set by a handler that goes on after it returned
};

using Handler = Error* (*)(CallFrame*);

struct Metadata {
  size_t struct_size;
  Version version;
  uint32_t traits;
  TypeId state_type;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct ErrorCreateArgs {
  size_t struct_size;
  Extension* extension;
  const char* message;
  int code;
};

struct ErrorDetailsArgs {
  size_t struct_size;
  Extension* extension;
  Error* error;
  const char* message;
  int code;  // since minor version 5
};

struct ErrorDestroyArgs {
  size_t struct_size;
  Extension* extension;
  Error* error;
};

struct FutureCreateArgs {
  size_t struct_size;
  Extension* extension;
  Future* future;
};

struct FutureArgs {
  size_t struct_size;
  Extension* extension;
  Future* future;
  Error* error;  // of SetError
};

struct TypeRegisterArgs {
  size_t struct_size;
  Extension* extension;
  Text name;
  TypeId* type;
  const TypeInfo* info;
};

struct ContextGetArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  TypeId* type;
  void* data;
};

struct StateArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  int stage;
  TypeId* type;
  void* state;
};

struct StreamGetArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  void* stream;
};

struct MemoryArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  size_t size;
  size_t alignment;
  void* data;
};

struct MemoryFreeArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  size_t size;
  void* data;
};

struct ScheduleArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  void (*task)(void* data);
  void* data;
};

struct NumThreadsArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  int64_t* num_threads;
};

struct RunIdArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  int64_t run_id;
};

struct DeviceOrdinalArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  int32_t ordinal;
};

struct FindExtensionArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  int64_t type;
  const void* found;
};

struct CustomOptionsArgs {
  size_t struct_size;
  Extension* extension;
  Context* context;
  const Attributes* options;
};

struct Api {
  size_t struct_size;
  Extension* extension;
  Version version;
  const void* internal;
  Error* (*error_create)(ErrorCreateArgs*);
  void (*error_details)(ErrorDetailsArgs*);
  void (*error_destroy)(ErrorDestroyArgs*);
  Error* (*handler_register)(void*);
  Error* (*stream_get)(StreamGetArgs*);
  Error* (*type_register)(TypeRegisterArgs*);
  Error* (*context_get)(ContextGetArgs*);
  Error* (*state_set)(StateArgs*);
  Error* (*state_get)(StateArgs*);
  Error* (*memory_allocate)(MemoryArgs*);
  Error* (*memory_free)(MemoryFreeArgs*);
  Error* (*schedule)(ScheduleArgs*);
  Error* (*num_threads)(NumThreadsArgs*);
  Error* (*future_create)(FutureCreateArgs*);
  Error* (*future_set_available)(FutureArgs*);
  Error* (*future_set_error)(FutureArgs*);
  Error* (*run_id)(RunIdArgs*);
  Error* (*device_ordinal)(DeviceOrdinalArgs*);
  Error* (*find_extension)(FindExtensionArgs*);  // since minor version 5
  Error* (*custom_options)(CustomOptionsArgs*);  // since minor version 5
};

}  // namespace pjrt_metal::xla_ffi
