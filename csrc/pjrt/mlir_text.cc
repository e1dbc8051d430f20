// The MLIR module that stands for a Program where a client wants to read the optimized program.
//
// jaxlib asks for it at every compilation and converts it to HLO (1.1 ms, and 10 us for each op),
// for `Compiled.as_text()` and the like; a module that it cannot convert makes those fail. So it
// gets the program's signature around one custom call, which carries the compiler's own text.
#include <string>

#include "csrc/pjrt/objects.h"
#include "csrc/runtime/dtype.h"

namespace pjrt_metal {
namespace {

std::string Type(const TensorInfo& tensor) {
  if (tensor.dtype == DType::kToken) return "!stablehlo.token";
  std::string type = "tensor<";
  for (const int64_t dim : tensor.dims) type += std::to_string(dim) + "x";
  return type + std::string(Info(tensor.dtype).name) + ">";
}

// An MLIR string literal.
std::string Quoted(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      result += {'\\', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      result += c;
    }
  }
  return result + "\"";
}

template <typename F>
std::string List(size_t count, F item) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += (i == 0 ? "" : ", ") + item(i);
  return result;
}

}  // namespace

std::string MlirText(const Program& program) {
  const auto& parameters = program.parameters;
  const auto& outputs = program.outputs;
  const std::string declared = List(parameters.size(), [&](size_t i) {
    std::string text = "%arg" + std::to_string(i) + ": " + Type(parameters[i]);
    if (parameters[i].alias < 0) return text;
    return text + " {tf.aliasing_output = " + std::to_string(parameters[i].alias) + " : i32}";
  });
  const std::string results = List(outputs.size(), [&](size_t i) { return Type(outputs[i]); });
  const std::string operands = List(parameters.size(), [](size_t i) { return "%arg" + std::to_string(i); });
  const std::string operand_types = List(parameters.size(), [&](size_t i) { return Type(parameters[i]); });
  const std::string values =
      List(outputs.size(), [&](size_t i) { return outputs.size() == 1 ? "%0" : "%0#" + std::to_string(i); });
  const std::string defined =
      outputs.empty() ? "" : "%0" + (outputs.size() == 1 ? "" : ":" + std::to_string(outputs.size())) + " = ";
  return "module @" + Quoted(program.name.empty() ? "main" : program.name) + " {\n  func.func public @main(" +
         declared + ") -> (" + results + ") {\n    " + defined + "stablehlo.custom_call @metal.program(" + operands +
         ") {has_side_effect = true, backend_config = " + Quoted(program.text) + "} : (" + operand_types + ") -> (" +
         results + ")\n    return" + (outputs.empty() ? "" : " " + values + " : " + results) + "\n  }\n}\n";
}

}  // namespace pjrt_metal
