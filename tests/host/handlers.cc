// XLA FFI handlers against jaxlib's own headers; compiled and registered by test_ffi.py.
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "xla/ffi/api/c_api.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

void Describe(const XLA_FFI_Attrs& attrs, std::ostream& out);

void DescribeBytes(const void* data, size_t size, std::ostream& out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (size_t i = 0; i < size; ++i) {
    const auto byte = static_cast<const unsigned char*>(data)[i];
    out << kDigits[byte >> 4] << kDigits[byte & 15];
  }
}

size_t SizeOf(XLA_FFI_DataType dtype) { return ffi::ByteWidth(static_cast<ffi::DataType>(dtype)); }

void DescribeValue(XLA_FFI_AttrType type, const void* value, std::ostream& out) {
  switch (type) {
    case XLA_FFI_AttrType_ARRAY: {
      const auto& array = *static_cast<const XLA_FFI_Array*>(value);
      out << "array " << array.dtype << " x" << array.size << " ";
      DescribeBytes(array.data, array.size * SizeOf(array.dtype), out);
      return;
    }
    case XLA_FFI_AttrType_DICTIONARY:
      return Describe(*static_cast<const XLA_FFI_Attrs*>(value), out);
    case XLA_FFI_AttrType_SCALAR: {
      const auto& scalar = *static_cast<const XLA_FFI_Scalar*>(value);
      out << "scalar " << scalar.dtype << " ";
      DescribeBytes(scalar.value, SizeOf(scalar.dtype), out);
      return;
    }
    case XLA_FFI_AttrType_STRING: {
      const auto& text = *static_cast<const XLA_FFI_ByteSpan*>(value);
      out << "string '" << std::string(text.ptr, text.len) << "'";
      return;
    }
  }
}

void Describe(const XLA_FFI_Attrs& attrs, std::ostream& out) {
  out << "{";
  for (int64_t i = 0; i < attrs.size; ++i) {
    out << std::string(attrs.names[i]->ptr, attrs.names[i]->len) << ": ";
    DescribeValue(attrs.types[i], attrs.attrs[i], out);
    out << "; ";
  }
  out << "}";
}

void DescribeBuffer(const void* argument, std::ostream& out) {
  const auto& buffer = *static_cast<const XLA_FFI_Buffer*>(argument);
  size_t elements = 1;
  out << "buffer " << buffer.dtype << " [";
  for (int64_t i = 0; i < buffer.rank; ++i) {
    out << buffer.dims[i] << ",";
    elements *= static_cast<size_t>(buffer.dims[i]);
  }
  out << "] ";
  DescribeBytes(buffer.data, elements * SizeOf(buffer.dtype), out);
  out << "; ";
}

ffi::Error Check(ffi::AnyBuffer x, ffi::Result<ffi::AnyBuffer> y, int32_t code, std::string_view message) {
  if (code != 0) return ffi::Error(static_cast<ffi::ErrorCode>(code), std::string(message));
  std::memcpy(y->untyped_data(), x.untyped_data(), x.size_bytes());
  return ffi::Error::Success();
}

ffi::Error InPlace(ffi::AnyBuffer x, ffi::Result<ffi::BufferR1<ffi::F32>> y) {
  if (x.untyped_data() != y->untyped_data()) return ffi::Error::Internal("operand and result differ in memory");
  for (size_t i = 0; i < y->element_count(); ++i) y->typed_data()[i] += 1;
  return ffi::Error::Success();
}

ffi::Future Later(ffi::BufferR1<ffi::F32> x, ffi::Result<ffi::BufferR1<ffi::F32>> y, bool fail) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([=, promise = std::move(promise)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = 2 * x.typed_data()[i];
    if (fail) return promise.SetError(ffi::Error(ffi::ErrorCode::kDataLoss, "the future failed"));
    promise.SetAvailable();
  }).detach();
  return future;
}

ffi::Error WithContext(ffi::ScratchAllocator scratch, ffi::ThreadPool pool, int32_t ordinal,
                       ffi::Result<ffi::BufferR1<ffi::S32>> out) {
  auto memory = scratch.Allocate(1 << 16);
  if (!memory.has_value()) return ffi::Error::Internal("no scratch");
  std::memset(*memory, 1, 1 << 16);
  int32_t ran = 0;
  pool.Schedule([&ran] { ++ran; });
  out->typed_data()[0] = ran;
  out->typed_data()[1] = ordinal;
  return ffi::Error::Success();
}

int states = 0;

struct Counter {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  explicit Counter(int64_t start) : next(start) { ++states; }
  ~Counter() { --states; }
  int64_t next;
};

ffi::TypeId Counter::id = {};
ffi::TypeInfo Counter::info = ffi::MakeTypeInfo<Counter>();

ffi::ErrorOr<std::unique_ptr<Counter>> NewCounter(int64_t start) { return std::make_unique<Counter>(start); }

ffi::Error Count(Counter* counter, ffi::Result<ffi::BufferR0<ffi::S32>> out) {
  *out->typed_data() = static_cast<int32_t>(counter->next++);
  return ffi::Error::Success();
}

}  // namespace

extern "C" int LiveStates() { return states; }
extern "C" void* CounterTypeId() { return &Counter::id; }
extern "C" void* CounterTypeInfo() { return &Counter::info; }

// Writes what it was given into its last result, a u8 array.
extern "C" XLA_FFI_Error* DescribeCall(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start != nullptr) {  // asked for its version
    auto* extension = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start);
    extension->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    extension->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return nullptr;
  }
  std::ostringstream out;
  for (int64_t i = 0; i < frame->args.size; ++i) DescribeBuffer(frame->args.args[i], out);
  Describe(frame->attrs, out);
  const auto& result = *static_cast<XLA_FFI_Buffer*>(frame->rets.rets[frame->rets.size - 1]);
  std::memset(result.data, 0, static_cast<size_t>(result.dims[0]));
  std::memcpy(result.data, out.str().data(), std::min(out.str().size(), static_cast<size_t>(result.dims[0])));
  return nullptr;
}

extern "C" XLA_FFI_Error* Throws(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start != nullptr) return nullptr;
  throw std::runtime_error("thrown by the handler");
}

// As one compiled for a version of the FFI that does not exist yet.
extern "C" XLA_FFI_Error* FromTheFuture(XLA_FFI_CallFrame* frame) {
  auto* extension = reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start);
  if (extension != nullptr) extension->metadata->api_version.minor_version = 99;
  return nullptr;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    CheckCall, Check,
    ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>().Attr<int32_t>("code").Attr<std::string_view>(
        "message"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(InPlaceCall, InPlace,
                              ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Ret<ffi::BufferR1<ffi::F32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    LaterCall, Later,
    ffi::Ffi::Bind().Arg<ffi::BufferR1<ffi::F32>>().Ret<ffi::BufferR1<ffi::F32>>().Attr<bool>("fail"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(ContextCall, WithContext,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Ctx<ffi::ThreadPool>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .Ret<ffi::BufferR1<ffi::S32>>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(CounterInstantiate, NewCounter, ffi::Ffi::BindInstantiate().Attr<int64_t>("start"));
XLA_FFI_DEFINE_HANDLER_SYMBOL(CounterCall, Count,
                              ffi::Ffi::Bind().Ctx<ffi::State<Counter>>().Ret<ffi::BufferR0<ffi::S32>>());
