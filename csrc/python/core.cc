// pjrt_metal._core: connects the plugin library with the compiler, which is Python.
#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>

#include "csrc/pjrt/private_extension.h"

namespace py = pybind11;
using pjrt_metal::PrivateExtension;

namespace {

// Never destroyed by C++: at interpreter exit unregister_compiler drops them while Python still lives.
py::object* compiler = nullptr;
const PrivateExtension* extension = nullptr;

constexpr int kInternal = 13;
constexpr int kUnavailable = 14;

using EmitResult = void (*)(void* sink, const char* bytes, size_t size);

int EmitText(EmitResult emit, void* sink, int code, const std::string& text) {
  emit(sink, text.data(), text.size());
  return code;
}

// Runs the Python compiler. Called on jaxlib's threads, without the GIL.
int Compile(const char* code, size_t code_size, const char* format, size_t format_size, const char* options,
            size_t options_size, const char* target, size_t target_size, int trusted, EmitResult emit, void* sink) {
  if (Py_IsInitialized() == 0 || compiler == nullptr) {
    return EmitText(emit, sink, kUnavailable, "Python is shutting down: no program can be compiled any more");
  }
  const py::gil_scoped_acquire gil;
  try {
    const py::bytes program =
        (*compiler)(py::bytes(code, code_size), py::str(format, format_size), py::bytes(options, options_size),
                    py::str(target, target_size), py::bool_(trusted != 0));
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(program.ptr(), &data, &size) != 0) throw py::error_already_set();
    emit(sink, data, static_cast<size_t>(size));
    return 0;
  } catch (py::error_already_set& error) {
    // A CompileError says what is wrong in words for the user; anything else is our fault and shows where.
    if (py::hasattr(error.value(), "code") && py::isinstance<py::int_>(error.value().attr("code"))) {
      return EmitText(emit, sink, error.value().attr("code").cast<int>(), py::str(error.value()).cast<std::string>());
    }
    return EmitText(emit, sink, kInternal, std::string("the compiler failed: ") + error.what());
  } catch (const std::exception& error) {
    return EmitText(emit, sink, kInternal, std::string("the compiler failed: ") + error.what());
  }
}

const PrivateExtension* FindExtension(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto get_api = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get_api == nullptr) throw std::runtime_error(path + " has no GetPjrtApi");
  for (const PJRT_Extension_Base* e = get_api()->extension_start; e != nullptr; e = e->next) {
    if (static_cast<int>(e->type) != pjrt_metal::kPrivateExtensionType) continue;
    const auto* found = reinterpret_cast<const PrivateExtension*>(e);
    if (found->version != pjrt_metal::kPrivateExtensionVersion) {
      throw std::runtime_error(path + " is of another version than pjrt_metal._core: install pjrt-metal again");
    }
    return found;
  }
  throw std::runtime_error(path + " is not pjrt-metal's plugin library");
}

void Register(const std::string& path, py::object callable) {
  extension = FindExtension(path);
  delete compiler;
  compiler = new py::object(std::move(callable));
  extension->set_compiler(&Compile);
}

void Unregister() {
  if (extension != nullptr) extension->set_compiler(nullptr);
  delete compiler;
  compiler = nullptr;
}

void LogPhase(const std::string& phase, double milliseconds, const std::string& detail) {
  if (extension != nullptr) extension->log_phase(phase.c_str(), milliseconds, detail.c_str());
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "Connects the plugin library with the compiler in mlir_lowering.";
  module.def(
      "register_compiler", &Register, py::arg("library_path"), py::arg("callable"),
      "Makes the plugin library compile with callable(code: bytes, format: str, options: bytes, target: str, "
      "trusted: bool) -> bytes. An exception with an int attribute `code` (a PJRT_Error_Code) becomes that error.");
  module.def("unregister_compiler", &Unregister, "Undoes register_compiler; call it before Python shuts down.");
  module.def("log_phase", &LogPhase, py::arg("phase"), py::arg("milliseconds"), py::arg("detail"),
             "One line of the plugin's log, if PJRT_METAL_LOG is set.");
}
