// The C++ that is compiled for kernels of the strict device.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/runtime/device.h"

namespace pjrt_metal::software {

// As UnitPrologue and KernelText of kernel_unit.h, for a function that runs one thread
// (StrictFunction of strict_machine.h).
std::string_view StrictPrologue();
std::string StrictKernelText(const KernelSource& kernel);
// Options besides those that every kernel is compiled with.
std::span<const char* const> StrictFlags();

// Threadgroup memory declared in MSL as references to memory that the device gives:
//   threadgroup float tile[8][9];
// Parameters, pointers and casts keep their text. Lines stay where they are.
std::string RewriteThreadgroupMemory(const std::string& source);

// As those three, for kernels of the software device's own schedules.
std::string_view CheckedPrologue();
std::string CheckedKernelText(const KernelSource& kernel);
std::span<const char* const> CheckedFlags();

// Arrays that a kernel declares, each alone on a line, as references to memory that the device gives:
//   alignas(64) float sums[384];
// Lines stay where they are.
std::string RewriteThreadArrays(const std::string& source);

// The names of a kernel's buffers, in order of [[buffer(i)]] in its text, those of kArgs left out.
std::vector<std::string> BufferNames(const KernelSource& kernel);

}  // namespace pjrt_metal::software
