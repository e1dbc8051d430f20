// How a slot of the C table is made from a C++ function: `api.PJRT_X = Entry<X>`, where X takes the
// arguments by reference and throws. Entry checks struct_size and turns every exception into a
// PJRT_Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>

#include "csrc/pjrt/pjrt_c_api.h"
#include "csrc/runtime/dtype.h"
#include "csrc/runtime/error.h"
#include "csrc/runtime/forked.h"

namespace pjrt_metal {

// Bytes of `type` up to and including `field`: the least struct_size of a function whose later
// fields are newer than the oldest client served.
#define PJRT_METAL_THROUGH(type, field) (offsetof(type, field) + sizeof(type::field))
// True if the caller's version of the struct has the field. Newer fields are touched only behind
// this.
#define PJRT_METAL_HAS(args, field) \
  ((args).struct_size >=            \
   static_cast<size_t>(reinterpret_cast<const char*>(&(args).field + 1) - reinterpret_cast<const char*>(&(args))))

PJRT_Error* NewError(Code code, const std::string& message) noexcept;
inline PJRT_Error* NewError(const Error& error) noexcept { return NewError(error.code(), error.what()); }
// For use in a catch block: the exception in flight as a PJRT_Error.
PJRT_Error* CurrentError() noexcept;

// An error given by the client; a code that PJRT does not define becomes kUnknown.
Error ErrorFromClient(int code, const char* message, size_t message_size);

// Throws InvalidArgument unless `size` (a struct_size) covers `required` bytes. `type`: typeid's
// name.
void CheckStructSize(size_t size, size_t required, const std::type_info& type);

// Of a client's pointer. A handle must be a live one of its kind.
template <typename T>
T& Required(T* pointer, const char* name) {
  if (pointer == nullptr) throw InvalidArgument(std::string(name) + " is null");
  if constexpr (requires { T::pool(); }) {
    if (!T::pool().Owns(pointer)) {
      throw InvalidArgument(std::string(name) + " was destroyed before, or is a handle of another kind");
    }
  }
  return *pointer;
}

// Ends a client's handle; null is none. In a forked child nothing is: it would wait for threads that are not there.
template <typename T>
void DestroyHandle(T* handle, const char* name) {
  if (handle != nullptr && !IsForked()) delete &Required(handle, name);
}

// The same where no error can be returned: a bad handle is left alone.
template <typename T>
void DeleteHandle(T* handle) {
  if (handle != nullptr && T::pool().Owns(handle)) delete handle;
}

// A pointer and a count from the client.
template <typename T>
std::span<T> Required(T* pointer, size_t count, const char* name) {
  if (pointer == nullptr && count > 0) {
    throw InvalidArgument(std::string(name) + " is null, but its count is " + std::to_string(count));
  }
  return {pointer, count};
}

inline std::string_view Text(const char* data, size_t size, const char* name) {
  const auto span = Required(data, size, name);
  return {span.data(), span.size()};
}

// Throws InvalidArgument for a number that PJRT does not define, Unimplemented for a type we lack.
DType ToDType(PJRT_Buffer_Type type);

// The argument struct of `void F(Args&)`.
template <auto function>
struct Signature;
template <typename A, void (*function)(A&)>
struct Signature<function> {
  using Args = A;
};
template <auto function>
using ArgsOf = typename Signature<function>::Args;

template <auto function, size_t required = StructSize<ArgsOf<function>>()>
PJRT_Error* Entry(ArgsOf<function>* args) noexcept {
  try {
    CheckStructSize(Required(args, "args").struct_size, required, typeid(*args));
    function(*args);
    return nullptr;
  } catch (...) {
    return CurrentError();
  }
}

// Each file fills its own slots.
void FillErrorFunctions(PJRT_Api& api);
void FillEventFunctions(PJRT_Api& api);
void FillClientFunctions(PJRT_Api& api);
void FillDeviceFunctions(PJRT_Api& api);
void FillMemoryFunctions(PJRT_Api& api);
void FillBufferFunctions(PJRT_Api& api);
void FillHostFunctions(PJRT_Api& api);
void FillExecutableFunctions(PJRT_Api& api);
void FillLoadedExecutableFunctions(PJRT_Api& api);
void FillTopologyFunctions(PJRT_Api& api);
void FillTransferFunctions(PJRT_Api& api);

// The extensions, each for one list that ends with `next`.
PJRT_Extension_Base* LayoutsExtension(PJRT_Extension_Base* next);
PJRT_Extension_Base* FfiExtension(PJRT_Extension_Base* next);
PJRT_Extension_Base* MemoryDescriptionsExtension(PJRT_Extension_Base* next);

}  // namespace pjrt_metal
