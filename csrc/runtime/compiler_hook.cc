#include "csrc/runtime/compiler_hook.h"

#include <dlfcn.h>

#include <mutex>
#include <vector>

#include "csrc/runtime/error.h"

namespace pjrt_metal {
namespace {

std::mutex mutex;
CompileCallback registered = nullptr;

CompileCallback Registered() {
  const std::lock_guard lock(mutex);
  return registered;
}

// What the process's Python offers, if it has one; functions of the stable ABI only.
struct Python {
  int (*is_initialized)() = Find<int (*)()>("Py_IsInitialized");
  int (*ensure)() = Find<int (*)()>("PyGILState_Ensure");
  void (*release)(int) = Find<void (*)(int)>("PyGILState_Release");
  int (*run)(const char*, void*) = Find<int (*)(const char*, void*)>("PyRun_SimpleStringFlags");

  bool usable() const {
    return is_initialized != nullptr && ensure != nullptr && release != nullptr && run != nullptr &&
           is_initialized() != 0;
  }

 private:
  template <class Function>
  static Function Find(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  }
};

// What goes wrong is printed by Python.
void ImportCompiler() {
  const Python python;
  if (!python.usable()) return;
  const int state = python.ensure();
  python.run("import pjrt_metal.compiler_hook\npjrt_metal.compiler_hook.connect()", nullptr);
  python.release(state);
}

struct Result {
  std::vector<std::byte> bytes;
};

void Emit(void* sink, const char* bytes, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes);
  static_cast<Result*>(sink)->bytes.assign(begin, begin + size);
}

}  // namespace

void SetCompiler(CompileCallback callback) {
  const std::lock_guard lock(mutex);
  registered = callback;
}

std::vector<std::byte> CompileToProgram(std::span<const char> code, std::span<const char> format,
                                        std::span<const char> options, const std::string& target, bool trusted) {
  CompileCallback compile = Registered();
  if (compile == nullptr) {
    ImportCompiler();
    compile = Registered();
  }
  if (compile == nullptr) {
    throw Unimplemented(
        "this process has no compiler for StableHLO: import pjrt_metal in Python first, or load a "
        "Program that was compiled before (PJRT_Executable_DeserializeAndLoad)");
  }
  Result result;
  const int status = compile(code.data(), code.size(), format.data(), format.size(), options.data(), options.size(),
                             target.data(), target.size(), trusted ? 1 : 0, Emit, &result);
  if (status == 0) return std::move(result.bytes);
  const std::string message(reinterpret_cast<const char*>(result.bytes.data()), result.bytes.size());
  const bool known = status > 0 && status <= static_cast<int>(Code::kUnauthenticated);
  throw Error(known ? static_cast<Code>(status) : Code::kInternal, message);
}

}  // namespace pjrt_metal
