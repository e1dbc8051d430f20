// The HLO module that stands for a Program where a client wants to read the optimized program.
//
// jaxlib asks for it at every compilation, for `Compiled.as_text()` and the like, and takes HLO or MLIR. HLO costs
// it less: an MLIR module takes 3 to 4 ms to parse and convert, a third of a small program's compilation. So it gets
// a HloModuleProtoWithConfig (xla/service/hlo.proto): the program's signature around one custom call, which carries
// the compiler's own text.
#include <string>
#include <vector>

#include "csrc/pjrt/layout.h"
#include "csrc/pjrt/objects.h"
#include "csrc/pjrt/proto.h"

namespace pjrt_metal {
namespace {

// xla.PrimitiveType (xla/xla_data.proto).
constexpr uint64_t kTuple = 13;
// Instructions are numbered within their computation, whose own number is in the upper half.
constexpr uint64_t kComputation = 1;

uint64_t InstructionId(size_t number) { return kComputation << 32 | number; }

std::string Shape(const TensorInfo& tensor) { return ShapeProto(tensor.dtype, tensor.dims, tensor.minor_to_major); }

// One output is an array, any other number a tuple.
std::string ResultShape(const std::vector<TensorInfo>& outputs) {
  if (outputs.size() == 1) return Shape(outputs[0]);
  ProtoWriter shape;
  shape.Varint(2, kTuple);
  for (const TensorInfo& output : outputs) shape.Bytes(4, Shape(output));
  return shape.bytes();
}

std::string ProgramShape(const Program& program) {
  ProtoWriter shape;
  for (const TensorInfo& parameter : program.parameters) shape.Bytes(1, Shape(parameter));
  shape.Bytes(2, ResultShape(program.outputs));
  for (size_t i = 0; i < program.parameters.size(); ++i) shape.Bytes(3, "arg" + std::to_string(i));
  return shape.bytes();
}

std::string Computation(const Program& program, const std::string& program_shape) {
  const size_t count = program.parameters.size();
  ProtoWriter computation;
  computation.Bytes(1, "main");
  std::vector<int64_t> operands;
  for (size_t i = 0; i < count; ++i) {
    ProtoWriter parameter;
    parameter.Bytes(1, "arg" + std::to_string(i));
    parameter.Bytes(2, "parameter");
    parameter.Bytes(3, Shape(program.parameters[i]));
    parameter.Varint(9, i);
    parameter.Varint(35, InstructionId(i));
    computation.Bytes(2, parameter.bytes());
    operands.push_back(static_cast<int64_t>(InstructionId(i)));
  }
  ProtoWriter call;
  call.Bytes(1, "program");
  call.Bytes(2, "custom-call");
  call.Bytes(3, ResultShape(program.outputs));
  call.Bytes(28, "metal.program");
  call.Varint(35, InstructionId(count));
  call.Packed(36, operands);
  call.Bytes(43, program.text);
  call.Varint(65, 1);  // custom_call_has_side_effect
  call.Varint(77, 1);  // custom_call_api_version: API_VERSION_ORIGINAL
  computation.Bytes(2, call.bytes());
  computation.Bytes(4, program_shape);
  computation.Varint(5, kComputation);
  computation.Varint(6, InstructionId(count));
  return computation.bytes();
}

// HloInputOutputAliasProto: outputs that may take a parameter's memory.
std::string Aliases(const Program& program) {
  ProtoWriter aliases;
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const int64_t output = program.parameters[i].alias;
    if (output < 0) continue;
    ProtoWriter entry;
    if (program.outputs.size() != 1) entry.Packed(1, {&output, 1});
    entry.Varint(2, i);
    entry.Varint(4, 1);  // MAY_ALIAS
    aliases.Bytes(1, entry.bytes());
  }
  return aliases.bytes();
}

}  // namespace

std::string HloModuleWithConfig(const Program& program) {
  const std::string shape = ProgramShape(program);
  ProtoWriter module;
  module.Bytes(1, program.name.empty() ? "main" : program.name);
  module.Bytes(2, "main");
  module.Bytes(3, Computation(program, shape));
  module.Bytes(4, shape);
  module.Varint(6, kComputation);
  module.Bytes(8, Aliases(program));
  ProtoWriter config;
  config.Bytes(1, shape);
  config.Varint(4, program.num_replicas);
  config.Varint(5, program.num_partitions);
  ProtoWriter both;
  both.Bytes(1, module.bytes());
  both.Bytes(2, config.bytes());
  return both.bytes();
}

}  // namespace pjrt_metal
