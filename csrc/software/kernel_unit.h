// The C++ that is compiled for kernels: each one's text and a function that runs a range of its
// threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "csrc/runtime/device.h"

namespace pjrt_metal::software {

// Runs the threads (begin..end, row[0], row[1]) of a grid. One row only: with a loop over all three
// dimensions in every kernel, g++ 12 took a third longer over small kernels. `buffers` in the order
// of the kernel's kInput and kOutput parameters; `args` aligned for any scalar or vector type.
using KernelFunction = void (*)(void* const* buffers, const void* args, const uint32_t* grid, const uint32_t* row,
                                uint32_t begin, uint32_t end);

// What a unit starts with, before the Program's preamble.
std::string_view UnitPrologue();
// The kernel and its KernelFunction, for a unit. Throws InvalidArgument unless the name is an
// identifier.
std::string KernelText(const KernelSource& kernel);
// The function's symbol.
std::string RunSymbol(const KernelSource& kernel);
// Throws InvalidArgument unless the name is an identifier.
void CheckKernelName(const KernelSource& kernel);

// How kernels become C++.
struct Dialect {
  std::string_view prologue;                 // what a unit starts with
  std::string (*text)(const KernelSource&);  // a kernel, and the function RunSymbol that calls it
  std::span<const char* const> flags;        // compiler options besides the usual ones
};
// For KernelFunctions.
const Dialect& FastDialect();

}  // namespace pjrt_metal::software
