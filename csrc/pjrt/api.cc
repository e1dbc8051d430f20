// The table of the PJRT C API, and the one symbol that this library exports.
#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/objects.h"
#include "csrc/pjrt/private_extension.h"
#include "csrc/runtime/ffi_registry.h"
#include "csrc/runtime/library_trial.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal {
namespace {

void Initialize(PJRT_Plugin_Initialize_Args&) {}

void GetAttributes(PJRT_Plugin_Attributes_Args& args) {
  static const Attributes* const attributes = [] {
    auto* result = new Attributes;
    result->Add("xla_version", int64_t{2});
    // The jaxlib that writes a program also reads it, so no version is too new.
    result->Add("stablehlo_current_version", {1, 1000, 0});
    result->Add("stablehlo_minimum_version", {0, 9, 0});
    return result;
  }();
  args.attributes = attributes->values().data();
  args.num_attributes = attributes->values().size();
}

void Log(const char* phase, double milliseconds, const char* detail) {
  if (LogEnabled()) {
    LogPhase(phase == nullptr ? "" : phase, milliseconds, detail == nullptr ? "" : detail);
  }
}

// What `body` throws as text, for callers without PJRT's errors.
template <class Body>
const char* Complaint(Body&& body) {
  static thread_local std::string text;
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    text = error.what();
    return text.c_str();
  }
}

const char* RegisterHandlers(const char* target, void* const* stages) {
  return Complaint([&] {
    FfiHandlers handlers{};
    for (size_t i = 0; i < handlers.size(); ++i) handlers[i] = reinterpret_cast<xla_ffi::Handler>(stages[i]);
    RegisterFfiHandlers(target, "metal", handlers);
  });
}

const char* RegisterType(const char* name, int64_t* id, void (*deleter)(void*)) {
  return Complaint([&] { *id = RegisterFfiType(name, *id, deleter); });
}

PJRT_Extension_Base* Extensions() {
  static PrivateExtension extension = {
      {sizeof(PrivateExtension), static_cast<PJRT_Extension_Type>(kPrivateExtensionType), nullptr},
      kPrivateExtensionVersion,
      SetCompiler,
      Log,
      SetPythonCallback,
      RegisterHandlers,
      RegisterType,
      GuardHostReads,
      RunTrials,
  };
  return LayoutsExtension(FfiExtension(MemoryDescriptionsExtension(&extension.base)));
}

PJRT_Api MakeApi() {
  PJRT_Api api = {};
  api.struct_size = StructSize<PJRT_Api>();
  api.extension_start = Extensions();
  api.pjrt_api_version = {StructSize<PJRT_Api_Version>(), nullptr, PJRT_API_MAJOR, PJRT_API_MINOR};
  api.PJRT_Plugin_Initialize = Entry<Initialize>;
  api.PJRT_Plugin_Attributes = Entry<GetAttributes>;
  FillErrorFunctions(api);
  FillEventFunctions(api);
  FillClientFunctions(api);
  FillDeviceFunctions(api);
  FillMemoryFunctions(api);
  FillBufferFunctions(api);
  FillHostFunctions(api);
  FillExecutableFunctions(api);
  FillLoadedExecutableFunctions(api);
  FillTopologyFunctions(api);
  FillTransferFunctions(api);
  return api;
}

}  // namespace
}  // namespace pjrt_metal

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = pjrt_metal::MakeApi();
  return &api;
}
