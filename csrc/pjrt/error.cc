// PJRT_Error: a code and a message, readable through the C functions or its own function table.
#include <cctype>
#include <cstring>
#include <new>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/handle.h"

namespace pjrt_metal {
namespace {

struct ErrorObject : PJRT_Error {
  PJRT_METAL_HANDLE(ErrorObject)
  Code code = Code::kInternal;
  std::string message;
};

void Delete(PJRT_Error* error);
void GetMessage(const PJRT_Error* error, const char** message, size_t* size);
PJRT_Error_Code GetCodeOf(const PJRT_Error* error);
void VisitPayloads(const PJRT_Error*, PJRT_Error_PayloadVisitor, void*) {}  // ours carry none

constexpr PJRT_Error_FunctionTable kTable = {
    sizeof(PJRT_Error_FunctionTable), sizeof(PJRT_Error), nullptr, Delete, GetMessage, GetCodeOf, VisitPayloads,
};

// Returned when there is no memory left for an error; never deleted.
PJRT_Error out_of_memory = {&kTable};
constexpr std::string_view kOutOfMemory = "pjrt_metal: out of host memory";

// Null if it is no error of ours, or was destroyed.
const ErrorObject* Object(const PJRT_Error* error) {
  const auto* const object = static_cast<const ErrorObject*>(error);
  return error != nullptr && error != &out_of_memory && ErrorObject::pool().Owns(object) ? object : nullptr;
}

void Delete(PJRT_Error* error) { delete Object(error); }

void GetMessage(const PJRT_Error* error, const char** message, size_t* size) {
  const ErrorObject* const object = Object(error);
  const std::string_view text = object != nullptr ? object->message : error == &out_of_memory ? kOutOfMemory : "";
  *message = text.data();
  *size = text.size();
}

PJRT_Error_Code GetCodeOf(const PJRT_Error* error) {
  if (error == &out_of_memory) return PJRT_Error_Code_RESOURCE_EXHAUSTED;
  const ErrorObject* const object = Object(error);
  return object == nullptr ? PJRT_Error_Code_UNKNOWN : static_cast<PJRT_Error_Code>(object->code);
}

// These two return nothing, so a bad call is ignored.
void Destroy(PJRT_Error_Destroy_Args* args) {
  if (args != nullptr && PJRT_METAL_HAS(*args, error)) Delete(args->error);
}

void Message(PJRT_Error_Message_Args* args) {
  if (args == nullptr || !PJRT_METAL_HAS(*args, message_size)) return;
  args->message = "";
  args->message_size = 0;
  if (args->error != nullptr) GetMessage(args->error, &args->message, &args->message_size);
}

void GetCode(PJRT_Error_GetCode_Args& args) { args.code = GetCodeOf(&Required(args.error, "error")); }

void ForEachPayload(PJRT_Error_ForEachPayload_Args& args) {
  Required(args.error, "error");
  if (args.visitor == nullptr) throw InvalidArgument("visitor is null");
}

// Length of the UTF-8 sequence at the front of `text`, 0 if there is none.
size_t SequenceLength(std::string_view text) {
  static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // by length: no overlong forms
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return 1;
  const size_t length = first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf8 ? 4 : 0;
  if (length == 0 || length > text.size()) return 0;
  uint32_t point = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return 0;
    point = point << 6 | (next & 0x3f);
  }
  const bool surrogate = point >= 0xd800 && point < 0xe000;
  return point < kLeast[length] || point > 0x10ffff || surrogate ? 0 : length;
}

// Messages may quote a client's bytes, and Python clients decode them: what is not UTF-8 becomes
// '?'.
std::string AsUtf8(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    result += length == 0 ? "?" : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

}  // namespace

PJRT_Error* NewError(Code code, const std::string& message) noexcept {
  try {
    auto* error = new ErrorObject;
    error->vtable = &kTable;
    error->code = code;
    error->message = AsUtf8(message);
    return error;
  } catch (...) {
    return &out_of_memory;
  }
}

PJRT_Error* CurrentError() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return NewError(error);
  } catch (const std::bad_alloc&) {
    return &out_of_memory;
  } catch (const std::exception& error) {
    return NewError(Code::kInternal, error.what());
  } catch (...) {
    return NewError(Code::kInternal, "unknown exception");
  }
}

Error ErrorFromClient(int code, const char* message, size_t message_size) {
  const bool known = code > static_cast<int>(Code::kOk) && code <= static_cast<int>(Code::kUnauthenticated);
  return Error(known ? static_cast<Code>(code) : Code::kUnknown,
               std::string(Text(message, message_size, "error_message")));
}

void CheckStructSize(size_t size, size_t required, const std::type_info& type) {
  if (size >= required) return;
  const char* name = type.name();  // Itanium mangling of a global struct: length, then name
  while (std::isdigit(static_cast<unsigned char>(*name))) ++name;
  throw InvalidArgument(std::string(name) + ": struct_size is " + std::to_string(size) +
                        ", this plugin needs at least " + std::to_string(required));
}

DType ToDType(PJRT_Buffer_Type type) {
  const int value = static_cast<int>(type);
  if (value <= PJRT_Buffer_Type_INVALID || value > PJRT_Buffer_Type_F6E3M2FN) {
    throw InvalidArgument("element type " + std::to_string(value) + " is not a PJRT_Buffer_Type");
  }
  if (!IsKnown(static_cast<uint8_t>(value))) {
    throw Unimplemented("element type " + std::to_string(value) + " is not supported");
  }
  return static_cast<DType>(value);
}

void FillErrorFunctions(PJRT_Api& api) {
  api.PJRT_Error_Destroy = Destroy;
  api.PJRT_Error_Message = Message;
  api.PJRT_Error_GetCode = Entry<GetCode>;
  api.PJRT_Error_ForEachPayload = Entry<ForEachPayload>;
}

}  // namespace pjrt_metal
