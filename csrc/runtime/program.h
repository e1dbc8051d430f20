// A Program: the plain data that the compiler makes and the runtime executes. It is the executable, the
// compilation-cache entry and the ahead-of-time artifact. Written by mlir_lowering/program.py, whose
// docstring is the format's specification; ParseProgram verifies everything once, at load, and nothing
// is checked again at run time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "csrc/runtime/device.h"
#include "csrc/runtime/dtype.h"
#include "csrc/runtime/ffi_attributes.h"
#include "csrc/runtime/library_op.h"

namespace pjrt_metal {

struct TensorInfo {
  DType dtype;
  std::vector<int64_t> dims;
  std::vector<int64_t> minor_to_major;  // logical layout jax asked for; data is dense in this order
  std::string memory_kind;              // "device", "pinned_host" or "unpinned_host"
  int32_t alias = -1;                   // parameter: output that may take its memory when donated
  bool donated = false;                 // parameter: the program asks for donation
  size_t bytes() const;
};

// Where a slot's memory is: a parameter's, an output's, a constant's, or a range of the arena.
enum class SlotKind : uint8_t { kParameter = 0, kOutput = 1, kConstant = 2, kArena = 3 };

struct Slot {
  SlotKind kind;
  uint32_t index;   // parameter, output or constant number; 0 for the arena
  uint64_t offset;  // bytes from the start of that memory
  uint64_t bytes;
};

// What a host call is given in a slot: a dense array (in the layout that the call wants), or a token.
struct HostArray {
  DType dtype;
  std::vector<int64_t> dims;
};

struct Step;
using Sequence = std::vector<Step>;

enum class StepKind : uint8_t { kLaunch = 0, kCopy = 1, kWhile = 2, kCase = 3, kHostCall = 4, kLibrary = 5 };

struct Step {
  StepKind kind;
  // kLaunch: kernel, the slots of its buffers in parameter order, argument bytes, grid (its label is the Program's)
  uint32_t kernel = 0;
  std::vector<uint32_t> slots;  // kCopy: {source, destination}; kWhile: {predicate}; kCase: {index}
  std::vector<std::byte> args;
  Grid grid{};
  // kWhile: {condition, body}; the condition sequence writes the one-byte predicate slot. kCase: branches,
  // chosen by an i32 slot (out of range: the last) or a one-byte pred slot (true: branch 0).
  std::vector<Sequence> bodies;
  int64_t trip_count = -1;  // kWhile: known number of iterations, or -1
  // kHostCall: an XLA FFI handler by name; slots are operands then results, and what is in them
  std::string target;
  uint32_t host_call = 0;  // its number among the Program's
  std::vector<HostArray> arrays;
  std::shared_ptr<const FfiAttributes> attributes;
  uint32_t operands = 0;  // how many of `slots` are operands
  // kLibrary: slots are {lhs, rhs, result}; the only body is launches that do the same
  uint32_t library_op = 0;
};

struct CostAnalysis {
  double flops = 0, transcendentals = 0, bytes_accessed = 0;
};

struct Program {
  std::string name;
  std::string target;       // the Target it was compiled for
  std::string fingerprint;  // hex, of all the compiler's inputs
  std::vector<TensorInfo> parameters;
  std::vector<TensorInfo> outputs;
  std::string preamble;  // MSL in front of the kernels in every compilation unit
  std::vector<KernelSource> kernels;
  std::vector<Label> labels;
  std::vector<std::vector<std::byte>> constants;
  std::vector<Slot> slots;
  std::vector<LibraryOp> library_ops;  // of the steps, in their order
  uint64_t arena_bytes = 0;
  Sequence body;
  uint32_t host_calls = 0;
  CostAnalysis cost;
  uint32_t num_replicas = 1, num_partitions = 1;
  std::string text;  // the optimized program, for people
};

// Throws InvalidArgument naming what is wrong and where (byte offset, step or slot number).
std::shared_ptr<const Program> ParseProgram(std::span<const std::byte> bytes);

}  // namespace pjrt_metal
