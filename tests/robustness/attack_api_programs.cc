// What compiles, loads, asks about and executes programs.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <string>

#include "tests/robustness/attack_api.h"

namespace pjrt_metal::attack {

void Round::Load() {
  const std::string options = Options(random_);
  const auto& program = random_.Pick(programs);
  auto args = New<PJRT_Executable_DeserializeAndLoad_Args>();
  args.client = Any<PJRT_Client>(kClient);
  args.serialized_executable = random_.OneIn(30) ? nullptr : program.data();
  args.serialized_executable_size = random_.OneIn(10) ? random_.Below(program.size()) : program.size();
  args.overridden_serialized_compile_options = options.data();
  args.overridden_serialized_compile_options_size = options.size();
  if (Call(api_.PJRT_Executable_DeserializeAndLoad, args)) Add(kLoaded, args.loaded_executable);
}

void Round::CompileOne() {
  std::string code(1 + random_.Below(3), static_cast<char>(random_.Next()));
  const std::string options = Options(random_);
  auto program = New<PJRT_Program>();
  program.code = random_.OneIn(10) ? nullptr : code.data();
  program.code_size = code.size();
  program.format = "mlir";
  program.format_size = 4;
  if (random_.OneIn(10)) program.struct_size = random_.Below(60);
  if (random_.OneIn(3)) {
    auto args = New<PJRT_Compile_Args>();
    args.topology = Any<PJRT_TopologyDescription>(kTopology);
    args.program = random_.OneIn(10) ? nullptr : &program;
    args.compile_options = options.data();
    args.compile_options_size = options.size();
    if (Call(api_.PJRT_Compile, args)) Add(kExecutable, args.executable);
    return;
  }
  auto args = New<PJRT_Client_Compile_Args>();
  args.client = Any<PJRT_Client>(kClient);
  args.program = random_.OneIn(10) ? nullptr : &program;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  if (Call(api_.PJRT_Client_Compile, args)) Add(kLoaded, args.executable);
}

void Round::AskLoaded() {
  PJRT_LoadedExecutable* const loaded = Any<PJRT_LoadedExecutable>(kLoaded);
  const auto with = [&](auto args, auto function) {
    args.executable = loaded;
    Call(function, args);
  };
  switch (random_.Below(6)) {
    case 0: {
      auto args = New<PJRT_LoadedExecutable_GetExecutable_Args>();
      args.loaded_executable = loaded;
      if (Call(api_.PJRT_LoadedExecutable_GetExecutable, args)) Add(kExecutable, args.executable);
      break;
    }
    case 1:
      with(New<PJRT_LoadedExecutable_AddressableDevices_Args>(), api_.PJRT_LoadedExecutable_AddressableDevices);
      break;
    case 2: {
      auto args = New<PJRT_LoadedExecutable_GetDeviceAssignment_Args>();
      args.executable = loaded;
      if (Call(api_.PJRT_LoadedExecutable_GetDeviceAssignment, args)) {
        for (size_t calls = 1 + random_.Below(2); calls > 0; --calls) {
          args.serialized_device_assignment_deleter(args.serialized_device_assignment);
        }
      }
      break;
    }
    case 3:
      with(New<PJRT_LoadedExecutable_Delete_Args>(), api_.PJRT_LoadedExecutable_Delete);
      break;
    case 4: {
      const std::string options = Options(random_);
      auto args = New<PJRT_Client_Load_Args>();
      args.client = Any<PJRT_Client>(kClient);
      args.executable = Any<PJRT_Executable>(kExecutable);
      args.compile_options = options.data();
      args.compile_options_size = options.size();
      if (Call(api_.PJRT_Client_Load, args)) Add(kLoaded, args.loaded_executable);
      break;
    }
    default:
      with(New<PJRT_LoadedExecutable_IsDeleted_Args>(), api_.PJRT_LoadedExecutable_IsDeleted);
  }
}

void Round::AskExecutable() {
  PJRT_Executable* const executable = Any<PJRT_Executable>(kExecutable);
  const auto with = [&](auto args, auto function) {
    args.executable = executable;
    Call(function, args);
  };
  switch (random_.Below(5)) {
    case 0:
      with(New<PJRT_Executable_Name_Args>(), api_.PJRT_Executable_Name);
      with(New<PJRT_Executable_Fingerprint_Args>(), api_.PJRT_Executable_Fingerprint);
      break;
    case 1:
      with(New<PJRT_Executable_GetCompiledMemoryStats_Args>(), api_.PJRT_Executable_GetCompiledMemoryStats);
      with(New<PJRT_Executable_GetCostAnalysis_Args>(), api_.PJRT_Executable_GetCostAnalysis);
      break;
    case 2: {
      auto program = New<PJRT_Program>();
      auto args = New<PJRT_Executable_OptimizedProgram_Args>();
      args.executable = executable;
      args.program = random_.OneIn(9) ? nullptr : &program;
      if (!Call(api_.PJRT_Executable_OptimizedProgram, args) || program.code_size > kHostBytes) break;
      if (random_.OneIn(3)) program.code_size /= 2;
      program.code = Target(program.code_size);
      Call(api_.PJRT_Executable_OptimizedProgram, args);
      break;
    }
    case 3: {
      auto args = New<PJRT_Executable_Serialize_Args>();
      args.executable = executable;
      if (Call(api_.PJRT_Executable_Serialize, args)) {
        for (size_t calls = 1 + random_.Below(2); calls > 0; --calls) {
          args.serialized_executable_deleter(args.serialized_executable);
        }
      }
      break;
    }
    default:
      with(New<PJRT_Executable_OutputElementTypes_Args>(), api_.PJRT_Executable_OutputElementTypes);
      with(New<PJRT_Executable_OutputDimensions_Args>(), api_.PJRT_Executable_OutputDimensions);
      with(New<PJRT_Executable_OutputMemoryKinds_Args>(), api_.PJRT_Executable_OutputMemoryKinds);
  }
}

void Round::Execute() {
  std::vector<PJRT_Buffer*> arguments(random_.Below(4));
  for (PJRT_Buffer*& argument : arguments) {
    argument = Any<PJRT_Buffer>(kBuffer);
    if (IsLive(kBuffer, argument) && !IsDefined(argument)) return;
  }
  std::array<PJRT_Buffer*, 16> outputs{};
  PJRT_Buffer* const* argument_list = random_.OneIn(20) ? nullptr : arguments.data();
  PJRT_Buffer** output_list = random_.OneIn(20) ? nullptr : outputs.data();
  auto options = New<PJRT_ExecuteOptions>();
  std::vector<int64_t> kept(random_.Below(3));
  for (int64_t& index : kept) index = static_cast<int64_t>(random_.OneIn(2) ? random_.Odd() : 0);
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  if (random_.OneIn(20)) options.num_send_ops = random_.Odd();
  if (random_.OneIn(20)) options.struct_size = random_.Below(sizeof options);
  auto args = New<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = Any<PJRT_LoadedExecutable>(kLoaded);
  args.options = random_.OneIn(20) ? nullptr : &options;
  args.argument_lists = random_.OneIn(20) ? nullptr : &argument_list;
  args.num_devices = random_.OneIn(10) ? random_.Odd() : 1;
  args.num_args = arguments.size();
  args.output_lists = random_.OneIn(20) ? nullptr : &output_list;
  PJRT_Event* done = nullptr;
  args.device_complete_events = random_.OneIn(2) ? &done : nullptr;
  if (random_.OneIn(6)) args.execute_device = Any<PJRT_Device>(kDevice);
  if (!Call(api_.PJRT_LoadedExecutable_Execute, args)) return;
  for (PJRT_Buffer* output : outputs) Add(kBuffer, output);
  Add(kEvent, done);
}

void Round::AskFfi() {
  if (random_.OneIn(2)) {
    auto args = New<PJRT_ExecuteContext_Create_Args>();
    if (Call(api_.PJRT_ExecuteContext_Create, args)) Add(kContext, args.context);
    return;
  }
  auto args = New<PJRT_FFI_UserData_Add_Args>();
  args.context = Any<PJRT_ExecuteContext>(kContext);
  args.user_data.type_id = static_cast<int64_t>(random_.Odd());
  Call(ffi_.user_data_add, args);
}

}  // namespace pjrt_metal::attack
