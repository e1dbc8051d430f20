// Launches of strict kernels: each is run in every order of threads that is asked for, and the
// results are compared.
#pragma once

#include <mutex>
#include <vector>

#include "csrc/software/kernel_cache.h"
#include "csrc/software/strict_machine.h"
#include "csrc/software/strict_memory.h"

namespace pjrt_metal::software {

// How kernels become StrictFunctions.
const Dialect& StrictDialect();
// The same, for kernels of the software device's own schedules: grids of threadgroups of one thread.
const Dialect& CheckedDialect();

// `loaded`: what a KernelCache with StrictDialect gave for it.
StrictKernel MakeStrictKernel(const KernelSource& source, LoadedKernel loaded);

// Whether this system can run them.
bool SupportsStrictKernels();

class StrictRunner {
 public:
  explicit StrictRunner(uint32_t orders) : orders_(orders) {}

  // `pieces`: the kernel's buffers in order, and last its arguments if it takes some. Writes into
  // them what the kernel wrote. Throws Internal that says which of Metal's rules was violated.
  // `touched`, if given, gets what the kernel accessed.
  void Run(const StrictKernel& kernel, const Geometry& geometry, const std::vector<Piece>& pieces, bool takes_args,
           std::vector<Touched>* touched = nullptr);

 private:
  const uint32_t orders_;
  std::mutex mutex_;  // guards machine_
  Machine machine_;
};

}  // namespace pjrt_metal::software
