// Sixteen threads compile, execute, transfer, delete and are called back on one client: storm CORPUS ROUNDS SEED
//
// Run under the thread sanitizer, on the software device. The corpus's first Program is `copies`, the second `add` of 8
// elements with a donated first operand. Sums are compared; buffers that several threads use may be deleted under them,
// which is an error and no more.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include "csrc/pjrt/private_extension.h"
#include "csrc/runtime/device.h"
#include "csrc/software/software_device.h"
#include "tests/robustness/attack.h"

namespace pjrt_metal {

std::vector<std::unique_ptr<Device>> DiscoverDevices() {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(software::Create());
  return devices;
}

}  // namespace pjrt_metal

namespace pjrt_metal::attack {
namespace {

constexpr size_t kThreads = 16;
constexpr size_t kElements = 8;  // of `add`
constexpr size_t kShared = 12;   // buffers that all threads use

std::vector<std::string> programs;
std::atomic<uint64_t> callbacks = 0, sums = 0, errors = 0;

int Compile(const char* code, size_t, const char*, size_t, const char*, size_t, const char*, size_t, int,
            void (*emit)(void*, const char*, size_t), void* sink) {
  const std::string& program = programs[code[0] == 'a' ? 1 : 0];
  emit(sink, program.data(), program.size());
  return 0;
}

void OnReady(PJRT_Error* error, void*) {
  Take(*GetPjrtApi(), error);
  ++callbacks;
}

class Storm {
 public:
  Storm() : api_(*GetPjrtApi()) {
    auto create = New<PJRT_Client_Create_Args>();
    Must(api_.PJRT_Client_Create(&create));
    client_ = create.client;
    for (PJRT_Buffer*& buffer : shared_) buffer = Put(1);
    add_ = Load('a');
  }

  ~Storm() {
    for (PJRT_Buffer* buffer : shared_) Destroy(buffer);
    DestroyLoaded(add_);
    auto destroy = New<PJRT_Client_Destroy_Args>();
    destroy.client = client_;
    Must(api_.PJRT_Client_Destroy(&destroy));
  }

  void Work(uint64_t seed, int rounds) {
    Random random(seed, 0);
    for (int i = 0; i < rounds; ++i) {
      switch (random.Below(8)) {
        case 0: {
          PJRT_LoadedExecutable* const loaded = random.OneIn(2) ? Load('a') : LoadBytes();
          Ask(loaded);
          DestroyLoaded(loaded);
          break;
        }
        case 1:
        case 2:
        case 3:
          Add(random);
          break;
        case 4:
          CopyShared(random);
          break;
        case 5:
          ReplaceShared(random);
          break;
        case 6:
          AddShared(random);
          break;
        default: {
          auto stats = New<PJRT_Device_MemoryStats_Args>();
          auto devices = New<PJRT_Client_Devices_Args>();
          devices.client = client_;
          Must(api_.PJRT_Client_Devices(&devices));
          stats.device = devices.devices[0];
          Must(api_.PJRT_Device_MemoryStats(&stats));
        }
      }
    }
  }

 private:
  void Must(PJRT_Error* error) {
    std::string text;
    if (Take(api_, error, &text) == 0) return;
    std::fprintf(stderr, "%s\n", text.c_str());
    std::abort();
  }
  bool May(PJRT_Error* error) {
    const bool good = Take(api_, error) == 0;
    if (!good) ++errors;
    return good;
  }

  PJRT_Buffer* Put(float value) {
    std::array<float, kElements> data;
    data.fill(value);
    const int64_t dims[] = {kElements};
    auto from = New<PJRT_Client_BufferFromHostBuffer_Args>();
    from.client = client_;
    from.data = data.data();
    from.type = PJRT_Buffer_Type_F32;
    from.dims = dims;
    from.num_dims = 1;
    from.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    Must(api_.PJRT_Client_BufferFromHostBuffer(&from));
    Release(from.done_with_host_buffer);
    return from.buffer;
  }

  // Is called back, then waits.
  bool Finish(PJRT_Event* event) {
    auto ready = New<PJRT_Event_OnReady_Args>();
    ready.event = event;
    ready.callback = OnReady;
    Must(api_.PJRT_Event_OnReady(&ready));
    auto await = New<PJRT_Event_Await_Args>();
    await.event = event;
    const bool good = May(api_.PJRT_Event_Await(&await));
    Release(event);
    return good;
  }
  void Release(PJRT_Event* event) {
    auto destroy = New<PJRT_Event_Destroy_Args>();
    destroy.event = event;
    Must(api_.PJRT_Event_Destroy(&destroy));
  }
  void Destroy(PJRT_Buffer* buffer) {
    auto destroy = New<PJRT_Buffer_Destroy_Args>();
    destroy.buffer = buffer;
    Must(api_.PJRT_Buffer_Destroy(&destroy));
  }
  void DestroyLoaded(PJRT_LoadedExecutable* loaded) {
    auto destroy = New<PJRT_LoadedExecutable_Destroy_Args>();
    destroy.executable = loaded;
    Must(api_.PJRT_LoadedExecutable_Destroy(&destroy));
  }

  PJRT_LoadedExecutable* Load(char code) {
    auto program = New<PJRT_Program>();
    program.code = &code;
    program.code_size = 1;
    program.format = "mlir";
    program.format_size = 4;
    auto compile = New<PJRT_Client_Compile_Args>();
    compile.client = client_;
    compile.program = &program;
    Must(api_.PJRT_Client_Compile(&compile));
    return compile.executable;
  }
  PJRT_LoadedExecutable* LoadBytes() {
    auto load = New<PJRT_Executable_DeserializeAndLoad_Args>();
    load.client = client_;
    load.serialized_executable = programs[0].data();
    load.serialized_executable_size = programs[0].size();
    Must(api_.PJRT_Executable_DeserializeAndLoad(&load));
    return load.loaded_executable;
  }
  void Ask(PJRT_LoadedExecutable* loaded) {
    auto get = New<PJRT_LoadedExecutable_GetExecutable_Args>();
    get.loaded_executable = loaded;
    Must(api_.PJRT_LoadedExecutable_GetExecutable(&get));
    auto cost = New<PJRT_Executable_GetCostAnalysis_Args>();
    cost.executable = get.executable;
    Must(api_.PJRT_Executable_GetCostAnalysis(&cost));
    auto destroy = New<PJRT_Executable_Destroy_Args>();
    destroy.executable = get.executable;
    Must(api_.PJRT_Executable_Destroy(&destroy));
  }

  // The sum, or null if an operand was deleted meanwhile.
  PJRT_Buffer* Execute(PJRT_Buffer* a, PJRT_Buffer* b, bool donate) {
    PJRT_Buffer* arguments[] = {a, b};
    PJRT_Buffer* const* argument_list = arguments;
    PJRT_Buffer* output = nullptr;
    PJRT_Buffer** output_list = &output;
    PJRT_Event* done = nullptr;
    const int64_t kept[] = {0};
    auto options = New<PJRT_ExecuteOptions>();
    options.non_donatable_input_indices = kept;
    options.num_non_donatable_input_indices = donate ? 0 : 1;
    auto execute = New<PJRT_LoadedExecutable_Execute_Args>();
    execute.executable = add_;
    execute.options = &options;
    execute.argument_lists = &argument_list;
    execute.num_devices = 1;
    execute.num_args = 2;
    execute.output_lists = &output_list;
    execute.device_complete_events = &done;
    if (!May(api_.PJRT_LoadedExecutable_Execute(&execute))) return nullptr;
    Finish(done);
    return output;
  }

  void Expect(PJRT_Buffer* buffer, float value) {
    std::array<float, kElements> data{};
    auto to = New<PJRT_Buffer_ToHostBuffer_Args>();
    to.src = buffer;
    to.dst = data.data();
    to.dst_size = sizeof data;
    Must(api_.PJRT_Buffer_ToHostBuffer(&to));
    if (!Finish(to.event) || std::any_of(data.begin(), data.end(), [&](float x) { return x != value; })) {
      std::fprintf(stderr, "a wrong sum: %g, not %g\n", static_cast<double>(data[0]), static_cast<double>(value));
      std::abort();
    }
    ++sums;
  }

  void Add(Random& random) {
    const float value = static_cast<float>(random.Below(1000));
    PJRT_Buffer* a = Put(value);
    PJRT_Buffer* const b = Put(1);
    const size_t steps = 1 + random.Below(4);
    for (size_t i = 0; i < steps; ++i) {
      PJRT_Buffer* const sum = Execute(a, b, random.OneIn(2));
      if (sum == nullptr) std::abort();
      Destroy(a);
      a = sum;
    }
    Expect(a, value + static_cast<float>(steps));
    Destroy(a);
    Destroy(b);
  }

  // A handle is not destroyed while others use it, but its memory may be deleted.
  void CopyShared(Random& random) {
    auto devices = New<PJRT_Client_AddressableMemories_Args>();
    devices.client = client_;
    Must(api_.PJRT_Client_AddressableMemories(&devices));
    PJRT_Buffer* const buffer = Use(random);
    auto copy = New<PJRT_Buffer_CopyToMemory_Args>();
    copy.buffer = buffer;
    copy.dst_memory = devices.addressable_memories[random.Below(devices.num_addressable_memories)];
    if (May(api_.PJRT_Buffer_CopyToMemory(&copy))) {
      Expect(copy.dst_buffer, 1);
      Destroy(copy.dst_buffer);
    }
    Leave();
  }
  void AddShared(Random& random) {
    PJRT_Buffer* const a = Use(random);
    PJRT_Buffer* const b = Use(random);
    if (PJRT_Buffer* const sum = Execute(a, b, random.OneIn(20)); sum != nullptr) {
      Expect(sum, 2);
      Destroy(sum);
    }
    Leave();
    Leave();
  }
  PJRT_Buffer* Use(Random& random) {
    const std::lock_guard lock(handles_);
    ++users_;
    return random.Pick(shared_);
  }
  void Leave() {
    const std::lock_guard lock(handles_);
    --users_;
  }
  void ReplaceShared(Random& random) {
    const std::lock_guard lock(handles_);
    PJRT_Buffer*& buffer = random.Pick(shared_);
    auto remove = New<PJRT_Buffer_Delete_Args>();
    remove.buffer = buffer;
    Must(api_.PJRT_Buffer_Delete(&remove));
    if (users_ > 0) return;
    Destroy(buffer);
    buffer = Put(1);
  }

  const PJRT_Api& api_;
  PJRT_Client* client_ = nullptr;
  PJRT_LoadedExecutable* add_ = nullptr;
  std::mutex handles_;
  int users_ = 0;  // of shared handles, outside the lock
  std::array<PJRT_Buffer*, kShared> shared_{};
};

}  // namespace
}  // namespace pjrt_metal::attack

int main(int argc, char** argv) {
  using namespace pjrt_metal;
  using namespace pjrt_metal::attack;
  if (argc < 2) return 2;
  Install();
  if (std::string(argv[1]) == "target") {  // that Programs must be compiled for
    std::printf("%s\n", software::Create()->info().target.c_str());
    return 0;
  }
  programs = ReadPrograms<std::string>(argv[1]);
  for (const PJRT_Extension_Base* e = GetPjrtApi()->extension_start; e != nullptr; e = e->next) {
    if (static_cast<int>(e->type) != kPrivateExtensionType) continue;
    reinterpret_cast<const PrivateExtension*>(e)->set_compiler(&Compile);
  }
  const int rounds = std::atoi(argv[2]);
  const uint64_t seed = std::strtoull(argv[3], nullptr, 10);
  Begin(0, 1800);
  {
    Storm storm;
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&storm, seed, rounds, i] { storm.Work(seed * kThreads + i, rounds); });
    for (std::thread& thread : threads) thread.join();
  }
  alarm(0);
  std::printf("storm: %zu threads, %d rounds each, %llu sums right, %llu callbacks, %llu errors\n", kThreads, rounds,
              static_cast<unsigned long long>(sums), static_cast<unsigned long long>(callbacks),
              static_cast<unsigned long long>(errors));
  return 0;
}
