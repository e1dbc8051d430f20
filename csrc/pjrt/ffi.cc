// The FFI extension: handlers of custom calls, types, and user data of an execution.
#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/objects.h"
#include "csrc/runtime/ffi_registry.h"

namespace pjrt_metal {
namespace {

void RegisterType(PJRT_FFI_Type_Register_Args& args) {
  const std::string_view name = Text(args.type_name, args.type_name_size, "type_name");
  if (name.empty()) throw InvalidArgument("type_name is empty");
  args.type_id = RegisterFfiType(name, args.type_id, args.type_info == nullptr ? nullptr : args.type_info->deleter);
}

void AddUserData(PJRT_FFI_UserData_Add_Args& args) {
  PJRT_ExecuteContext& context = Required(args.context, "context");
  const std::lock_guard lock(context.mutex);
  if (!context.user_data.emplace(args.user_data.type_id, args.user_data.data).second) {
    throw Error(Code::kAlreadyExists,
                "the context has user data of type " + std::to_string(args.user_data.type_id) + " already");
  }
}

void RegisterHandler(PJRT_FFI_Register_Handler_Args& args) {
  const std::string_view target = Text(args.target_name, args.target_name_size, "target_name");
  if (target.empty()) throw InvalidArgument("target_name is empty");
  if (args.handler == nullptr) throw InvalidArgument("handler is null");
  FfiHandlers handlers{};
  handlers[xla_ffi::kExecute] = reinterpret_cast<xla_ffi::Handler>(args.handler);
  RegisterFfiHandlers(target, Text(args.platform_name, args.platform_name_size, "platform_name"), handlers);
}

}  // namespace

PJRT_Extension_Base* FfiExtension(PJRT_Extension_Base* next) {
  static PJRT_FFI_Extension extension = {
      {StructSize<PJRT_FFI_Extension>(), PJRT_Extension_Type_FFI, next},
      Entry<RegisterType>,
      Entry<AddUserData>,
      Entry<RegisterHandler>,
  };
  return &extension.base;
}

}  // namespace pjrt_metal
