// The compiler is Python (mlir_lowering). `pjrt_metal._core` registers it here through the private extension;
// if none is registered when a program must be compiled and this process hosts a Python interpreter, the hook
// imports pjrt_metal.compiler_hook.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pjrt_metal {

// C ABI of the callback, also the private extension's. Returns 0 and calls `emit_result(sink, bytes, size)`
// once with the Program; or returns a Code (see error.h) and calls it with the message.
using CompileCallback = int (*)(const char* code, size_t code_size, const char* format, size_t format_size,
                                const char* options, size_t options_size, const char* target, size_t target_size,
                                int trusted, void (*emit_result)(void* sink, const char* bytes, size_t size),
                                void* sink);

void SetCompiler(CompileCallback callback);  // nullptr removes it

// A Program's bytes for the StableHLO portable artifact (or text, format "mlir") and the serialized
// CompileOptionsProto; `trusted`: this process serialized the artifact itself. Throws the compiler's error, or
// Unimplemented if there is no compiler.
std::vector<std::byte> CompileToProgram(std::span<const char> code, std::span<const char> format,
                                        std::span<const char> options, const std::string& target, bool trusted);

}  // namespace pjrt_metal
