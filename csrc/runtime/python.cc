#include "csrc/runtime/python.h"

#include <dlfcn.h>

namespace pjrt_metal {
namespace {

// Functions of the stable ABI only.
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

}  // namespace

void RunPython(const char* statement) {
  const Python python;
  if (!python.usable()) return;
  const int state = python.ensure();
  python.run(statement, nullptr);
  python.release(state);
}

}  // namespace pjrt_metal
