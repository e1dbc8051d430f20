#include "csrc/runtime/compiler_hook.h"

#include <mutex>
#include <vector>

#include "csrc/runtime/error.h"
#include "csrc/runtime/forked.h"
#include "csrc/runtime/python.h"

namespace pjrt_metal {
namespace {

std::mutex mutex;
CompileCallback registered = nullptr;

CompileCallback Registered() {
  const std::lock_guard lock(mutex);
  return registered;
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
  RefuseIfForked();
  CompileCallback compile = Registered();
  if (compile == nullptr) {
    RunPython("import pjrt_metal.compiler_hook\npjrt_metal.compiler_hook.connect()");
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
