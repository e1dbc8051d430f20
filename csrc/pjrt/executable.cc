// PJRT_Executable: a Program that is not loaded on a device, and everything that is told of it.
#include <cstring>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/layout.h"
#include "csrc/pjrt/objects.h"
#include "csrc/runtime/compiler_hook.h"

// The bytes that Serialize and GetCompileOptions give out are the executable's own.
struct PJRT_SerializedExecutable {
  PJRT_METAL_HANDLE(PJRT_SerializedExecutable)
  std::shared_ptr<const pjrt_metal::CompiledProgram> owner;
};
struct PJRT_SerializedCompileOptions {
  PJRT_METAL_HANDLE(PJRT_SerializedCompileOptions)
  std::shared_ptr<const pjrt_metal::CompiledProgram> owner;
};

namespace pjrt_metal {
namespace {

// Unsigned, so that a corrupt Program's sizes may wrap.
uint64_t TotalBytes(const std::vector<TensorInfo>& tensors) {
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

void MemoryKinds(const std::vector<TensorInfo>& tensors, std::vector<const char*>& kinds, std::vector<size_t>& sizes) {
  for (const TensorInfo& tensor : tensors) {
    kinds.push_back(tensor.memory_kind.data());
    sizes.push_back(tensor.memory_kind.size());
  }
}

}  // namespace

CompiledProgram::CompiledProgram(std::string program_bytes, std::string options)
    : bytes(std::move(program_bytes)),
      compile_options(std::move(options)),
      program(ParseProgram(std::as_bytes(std::span(bytes)))),
      hlo_module(HloModuleWithConfig(*program)) {
  for (const TensorInfo& output : program->outputs) {
    output_types.push_back(static_cast<PJRT_Buffer_Type>(output.dtype));
    output_dims.insert(output_dims.end(), output.dims.begin(), output.dims.end());
    output_ranks.push_back(output.dims.size());
  }
  MemoryKinds(program->parameters, parameter_kinds, parameter_kind_sizes);
  MemoryKinds(program->outputs, output_kinds, output_kind_sizes);
  const auto new_layout = [this](const TensorInfo& tensor) {
    layouts.push_back(std::make_unique<PJRT_Layouts_MemoryLayout>(
        PJRT_Layouts_MemoryLayout{LayoutText(tensor.minor_to_major), true}));
    return layouts.back().get();
  };
  for (const TensorInfo& tensor : program->parameters) parameter_layouts.push_back(new_layout(tensor));
  for (const TensorInfo& tensor : program->outputs) output_layouts.push_back(new_layout(tensor));
  cost.Add("flops", static_cast<float>(program->cost.flops));
  cost.Add("transcendentals", static_cast<float>(program->cost.transcendentals));
  cost.Add("bytes accessed", static_cast<float>(program->cost.bytes_accessed));
  for (const KernelSource& kernel : program->kernels) {
    code_bytes += static_cast<int64_t>(kernel.source.size());
  }
}

std::string CompileBytes(const PJRT_Program* program, std::string_view options, const std::string& target,
                         bool trusted) {
  const PJRT_Program& given = Required(program, "program");
  CheckStructSize(given.struct_size, StructSize<PJRT_Program>(), typeid(given));
  const std::string_view code = Text(given.code, given.code_size, "program's code");
  const std::string_view format = Text(given.format, given.format_size, "program's format");
  const std::vector<std::byte> bytes = CompileToProgram(code, format, options, target, trusted);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

namespace {

const CompiledProgram& Checked(const PJRT_Executable* executable) {
  return *Required(executable, "executable").compiled;
}

void Compile(PJRT_Compile_Args& args) {
  const PJRT_TopologyDescription& topology = Required(args.topology, "topology");
  const std::string options(Text(args.compile_options, args.compile_options_size, "compile_options"));
  args.executable = new PJRT_Executable{
      std::make_shared<const CompiledProgram>(CompileBytes(args.program, options, topology.target, false), options)};
}

void Destroy(PJRT_Executable_Destroy_Args& args) { DestroyHandle(args.executable, "executable"); }

void Name(PJRT_Executable_Name_Args& args) {
  const std::string& name = Checked(args.executable).program->name;
  args.executable_name = name.data();
  args.executable_name_size = name.size();
}

void NumReplicas(PJRT_Executable_NumReplicas_Args& args) {
  args.num_replicas = Checked(args.executable).program->num_replicas;
}

void NumPartitions(PJRT_Executable_NumPartitions_Args& args) {
  args.num_partitions = Checked(args.executable).program->num_partitions;
}

void NumOutputs(PJRT_Executable_NumOutputs_Args& args) {
  args.num_outputs = Checked(args.executable).program->outputs.size();
}

void SizeOfGeneratedCode(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args& args) {
  args.size_in_bytes = Checked(args.executable).code_bytes;
}

void Fingerprint(PJRT_Executable_Fingerprint_Args& args) {
  const std::string& fingerprint = Checked(args.executable).program->fingerprint;
  args.executable_fingerprint = fingerprint.data();
  args.executable_fingerprint_size = fingerprint.size();
}

void GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args& args) {
  const auto values = Checked(args.executable).cost.values();
  args.num_properties = values.size();
  args.properties = values.data();
}

// All memory is the device's: the host_* fields are zero.
void GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args& args) {
  const CompiledProgram& compiled = Checked(args.executable);
  const Program& program = *compiled.program;
  const uint64_t arguments = TotalBytes(program.parameters);
  const uint64_t outputs = TotalBytes(program.outputs);
  const uint64_t arena = program.arena_bytes;
  uint64_t aliased = 0;
  for (const TensorInfo& parameter : program.parameters) {
    if (parameter.alias >= 0) aliased += parameter.bytes();
  }
  uint64_t constants = 0;
  for (const auto& constant : program.constants) constants += constant.size();
  const uint64_t peak = arguments + outputs - aliased + arena + constants;
  args.generated_code_size_in_bytes = compiled.code_bytes;
  args.argument_size_in_bytes = arguments;
  args.output_size_in_bytes = outputs;
  args.alias_size_in_bytes = aliased;
  args.temp_size_in_bytes = arena;
  args.host_generated_code_size_in_bytes = 0;
  args.host_argument_size_in_bytes = 0;
  args.host_output_size_in_bytes = 0;
  args.host_alias_size_in_bytes = 0;
  args.host_temp_size_in_bytes = 0;
  if (PJRT_METAL_HAS(args, peak_memory_in_bytes)) args.peak_memory_in_bytes = peak;
  if (PJRT_METAL_HAS(args, total_size_in_bytes)) args.total_size_in_bytes = peak;
  if (PJRT_METAL_HAS(args, total_allocation_bytes)) args.total_allocation_bytes = arena;
  if (PJRT_METAL_HAS(args, indefinite_allocations)) args.indefinite_allocations = constants;
  if (PJRT_METAL_HAS(args, peak_unpadded_heap_bytes)) args.peak_unpadded_heap_bytes = arena;
}

void OutputElementTypes(PJRT_Executable_OutputElementTypes_Args& args) {
  const auto& types = Checked(args.executable).output_types;
  args.output_types = const_cast<PJRT_Buffer_Type*>(types.data());  // the C API lacks a const
  args.num_output_types = types.size();
}

void OutputDimensions(PJRT_Executable_OutputDimensions_Args& args) {
  const CompiledProgram& compiled = Checked(args.executable);
  args.num_outputs = compiled.output_ranks.size();
  args.dims = compiled.output_dims.data();
  args.dim_sizes = compiled.output_ranks.data();
}

void ParameterMemoryKinds(PJRT_Executable_ParameterMemoryKinds_Args& args) {
  const CompiledProgram& compiled = Checked(args.executable);
  args.num_parameters = compiled.parameter_kinds.size();
  args.memory_kinds = compiled.parameter_kinds.data();
  args.memory_kind_sizes = compiled.parameter_kind_sizes.data();
}

void OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args& args) {
  const CompiledProgram& compiled = Checked(args.executable);
  args.num_outputs = compiled.output_kinds.size();
  args.memory_kinds = compiled.output_kinds.data();
  args.memory_kind_sizes = compiled.output_kind_sizes.data();
}

constexpr std::string_view kProgramFormat = "hlo_with_config";

// Called twice: without code for the size, then with room for it.
void OptimizedProgram(PJRT_Executable_OptimizedProgram_Args& args) {
  const std::string& bytes = Checked(args.executable).hlo_module;
  PJRT_Program& program = Required(args.program, "program");
  CheckStructSize(program.struct_size, StructSize<PJRT_Program>(), typeid(program));
  program.format = kProgramFormat.data();
  program.format_size = kProgramFormat.size();
  if (program.code != nullptr) {
    if (program.code_size < bytes.size()) {
      throw InvalidArgument("the program's code has room for " + std::to_string(program.code_size) + " bytes, not " +
                            std::to_string(bytes.size()));
    }
    std::memcpy(program.code, bytes.data(), bytes.size());
  }
  program.code_size = bytes.size();
}

void Serialize(PJRT_Executable_Serialize_Args& args) {
  const std::string& bytes = Checked(args.executable).bytes;
  args.serialized_executable = new PJRT_SerializedExecutable{args.executable->compiled};
  args.serialized_executable_deleter = DeleteHandle<PJRT_SerializedExecutable>;
  args.serialized_bytes = bytes.data();
  args.serialized_bytes_size = bytes.size();
}

void GetCompileOptions(PJRT_Executable_GetCompileOptions_Args& args) {
  const std::string& bytes = Checked(args.executable).compile_options;
  args.serialized_compile_options = new PJRT_SerializedCompileOptions{args.executable->compiled};
  args.serialized_compile_options_deleter = DeleteHandle<PJRT_SerializedCompileOptions>;
  args.serialized_bytes = bytes.data();
  args.serialized_bytes_size = bytes.size();
}

}  // namespace

void FillExecutableFunctions(PJRT_Api& api) {
  api.PJRT_Compile = Entry<Compile>;
  api.PJRT_Executable_Destroy = Entry<Destroy>;
  api.PJRT_Executable_Name = Entry<Name>;
  api.PJRT_Executable_NumReplicas = Entry<NumReplicas>;
  api.PJRT_Executable_NumPartitions = Entry<NumPartitions>;
  api.PJRT_Executable_NumOutputs = Entry<NumOutputs>;
  api.PJRT_Executable_SizeOfGeneratedCodeInBytes = Entry<SizeOfGeneratedCode>;
  api.PJRT_Executable_Fingerprint = Entry<Fingerprint>;
  api.PJRT_Executable_GetCostAnalysis = Entry<GetCostAnalysis>;
  api.PJRT_Executable_GetCompiledMemoryStats =
      Entry<GetCompiledMemoryStats,
            PJRT_METAL_THROUGH(PJRT_Executable_GetCompiledMemoryStats_Args, host_temp_size_in_bytes)>;
  api.PJRT_Executable_OutputElementTypes = Entry<OutputElementTypes>;
  api.PJRT_Executable_OutputDimensions = Entry<OutputDimensions>;
  api.PJRT_Executable_ParameterMemoryKinds = Entry<ParameterMemoryKinds>;
  api.PJRT_Executable_OutputMemoryKinds = Entry<OutputMemoryKinds>;
  api.PJRT_Executable_OptimizedProgram = Entry<OptimizedProgram>;
  api.PJRT_Executable_Serialize = Entry<Serialize>;
  api.PJRT_Executable_GetCompileOptions = Entry<GetCompileOptions>;
}

}  // namespace pjrt_metal
