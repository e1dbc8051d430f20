// The Python of this process, if it has one: found with dlsym, so the library needs no libpython.
#pragma once

namespace pjrt_metal {

// Runs a statement under the GIL; Python prints what goes wrong. Nothing happens in a process without Python.
void RunPython(const char* statement);

}  // namespace pjrt_metal
