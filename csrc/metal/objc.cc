#include "csrc/metal/objc.h"

#include <dlfcn.h>

#include <memory>

#include "csrc/runtime/error.h"
#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

// On macOS the system's libraries (dlopen finds them in the shared cache, so nothing of Apple's is
// needed to link); elsewhere what the process has already loaded.
#if defined(__APPLE__)
constexpr const char* kLibraries[] = {
    "/usr/lib/libobjc.A.dylib",
    "/System/Library/Frameworks/Foundation.framework/Foundation",
    "/System/Library/Frameworks/Metal.framework/Metal",
};
constexpr const char* kGraphLibraries[] = {
    "/System/Library/Frameworks/MetalPerformanceShaders.framework/MetalPerformanceShaders",
    "/System/Library/Frameworks/MetalPerformanceShadersGraph.framework/MetalPerformanceShadersGraph",
};
#else
constexpr std::array<const char*, 0> kLibraries{}, kGraphLibraries{};
#endif

// Apple's documentation of MTLCreateSystemDefaultDevice: on macOS there is a default device only for processes that
// have it. It is not where there is no window server.
constexpr const char* kCoreGraphics = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics";

template <typename T>
bool Find(const char* symbol, T& address) {
  address = reinterpret_cast<T>(dlsym(RTLD_DEFAULT, symbol));
  return address != nullptr;
}

std::string Load(Runtime& runtime) {
#if defined(__APPLE__) && !defined(__aarch64__)
  // There, objc_msgSend does not return structs; and those Macs have no Apple GPU.
  return "an Apple silicon process (this one is x86_64)";
#endif
  for (const char* library : kLibraries) {
    if (dlopen(library, RTLD_LAZY | RTLD_GLOBAL) == nullptr) return library;
  }
  Sel (*register_selector)(const char*) = nullptr;
  if (!Find(kCopyAllDevices, runtime.copy_all_devices)) return kCopyAllDevices;
  if (!Find(kCreateSystemDefaultDevice, runtime.create_default_device)) return kCreateSystemDefaultDevice;
  if (!Find(kEncoderInfoErrorKey, runtime.encoder_info_key)) return kEncoderInfoErrorKey;
  if (!Find("objc_getClass", runtime.get_class)) return "objc_getClass";
  if (!Find("sel_registerName", register_selector)) return "sel_registerName";
  if (!Find("_NSConcreteStackBlock", runtime.stack_block_class)) return "_NSConcreteStackBlock";
  if (!Find("objc_msgSend", runtime.message_send) && !Find("objc_msg_lookup", runtime.message_lookup)) {
    return "objc_msgSend";
  }
  for (size_t i = 0; i < kMessages; ++i) {
    runtime.selectors[i] = register_selector(kMessageFacts[i].selector);
  }
  for (size_t i = 0; i < kClasses; ++i) {
    runtime.classes[i] = runtime.get_class(kClassFacts[i].name);
    if (runtime.classes[i] == nullptr && AlwaysThere(kClassFacts[i].macos)) {
      return kClassFacts[i].name;
    }
  }
  if (dlopen(kCoreGraphics, RTLD_LAZY | RTLD_GLOBAL) == nullptr) LogPhase("metal: no CoreGraphics", 0, dlerror());
  return "";
}

std::string LoadGraph(GraphRuntime& graph) {
  const Runtime& runtime = GetRuntime();
  if (!runtime.missing.empty()) return runtime.missing;
  for (const char* library : kGraphLibraries) {
    if (dlopen(library, RTLD_LAZY | RTLD_GLOBAL) == nullptr) return library;
  }
  for (size_t i = 0; i < kGraphClasses; ++i) {
    graph.classes[i] = runtime.get_class(kGraphClassNames[i]);
    if (graph.classes[i] == nullptr) return kGraphClassNames[i];
  }
  return "";
}

}  // namespace

// The layout is Clang's "Block Implementation Specification".
struct BlockDescriptor {
  unsigned long reserved;
  unsigned long size;
  const char* signature;
};
struct CompletionBlock {
  void* isa;
  int32_t flags;
  int32_t reserved;
  void (*invoke)(CompletionBlock*, Id);
  const BlockDescriptor* descriptor;
  // A plain captured pointer: Metal copies the block's bytes, and calls it exactly once, so the
  // call owns it.
  std::function<void(Id)>* handler;
};

const Runtime& GetRuntime() {
  static const Runtime* const runtime = [] {
    auto* loaded = new Runtime;  // never freed: handlers may run while the process exits
    loaded->missing = Load(*loaded);
    return loaded;
  }();
  return *runtime;
}

const GraphRuntime& GetGraphRuntime() {
  static const GraphRuntime* const graph = [] {
    auto* loaded = new GraphRuntime;
    loaded->missing = LoadGraph(*loaded);
    return loaded;
  }();
  return *graph;
}

Ref String(std::string_view text) {
  const Id allocated = Send<Message::kAlloc>(Of(Class::kNSString));
  Ref string = Ref::Adopt(Send<Message::kInitWithBytes>(allocated, text.data(), text.size(), kUtf8Encoding));
  if (!string) throw InvalidArgument("a kernel's source or name, or a path, is not UTF-8");
  return string;
}

std::string Text(Id string) {
  const char* text = string == nullptr ? nullptr : Send<Message::kUtf8String>(string);
  return text == nullptr ? "" : text;
}

Id FileUrl(std::string_view path) { return Send<Message::kFileUrlWithPath>(Of(Class::kNSURL), String(path).get()); }

std::string ErrorText(Id error) {
  if (error == nullptr) return "no error was given by Metal";
  return Text(Send<Message::kLocalizedDescription>(error)) + " (" + Text(Send<Message::kDomain>(error)) + " " +
         std::to_string(Send<Message::kCode>(error)) + ")";
}

void AddCompletedHandler(Id command_buffer, std::function<void(Id)> handler) {
  static constexpr int32_t kHasSignature = 1 << 30;
  static constexpr BlockDescriptor kDescriptor = {0, sizeof(CompletionBlock), "v16@?0@8"};
  CompletionBlock block = {GetRuntime().stack_block_class,
                           kHasSignature,
                           0,
                           [](CompletionBlock* self, Id completed) {
                             const std::unique_ptr<std::function<void(Id)>> owned(self->handler);
                             const Pool pool;
                             (*owned)(completed);
                           },
                           &kDescriptor,
                           new std::function<void(Id)>(std::move(handler))};
  Send<Message::kAddCompletedHandler>(command_buffer, &block);
}

// An MPSGraphExecutableCompletionHandler: void (^)(NSArray* results, NSError* error). It owns nothing.
struct GraphCompletionBlock {
  void* isa;
  int32_t flags;
  int32_t reserved;
  void (*invoke)(GraphCompletionBlock*, Id, Id);
  const BlockDescriptor* descriptor;
  uint64_t number;
  void (*handler)(uint64_t, Id);
};

void SetGraphCompletionHandler(Id descriptor, uint64_t number, void (*handler)(uint64_t number, Id error)) {
  static constexpr int32_t kHasSignature = 1 << 30;
  static constexpr BlockDescriptor kDescriptor = {0, sizeof(GraphCompletionBlock), "v24@?0@8@16"};
  GraphCompletionBlock block = {GetRuntime().stack_block_class,
                                kHasSignature,
                                0,
                                [](GraphCompletionBlock* self, Id, Id error) {
                                  const Pool pool;
                                  self->handler(self->number, error);
                                },
                                &kDescriptor,
                                number,
                                handler};
  Send<Message::kSetGraphCompletionHandler>(descriptor, reinterpret_cast<CompletionBlock*>(&block));
}

}  // namespace pjrt_metal::metal
