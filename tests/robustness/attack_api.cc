// Calls the C API in random orders with bad sizes, nulls, and handles that are gone or of another kind:
// attack_api CORPUS ROUNDS SEED [ONLY]
//
// A round makes a client and gives it some hundred calls. What the C API cannot know is kept right: how much memory
// lies behind a pointer, and that an event is only awaited if somebody will set it. Everything else may be wrong; then
// there is an error, and at the end nothing is left (the leak checker looks).
#include "tests/robustness/attack_api.h"

#include <algorithm>
#include <array>

namespace pjrt_metal::attack {

namespace {

constexpr int kCalls = 300;

// Answers as a compiler may, or as none should.
int Compile(const char* code, size_t code_size, const char*, size_t, const char*, size_t, const char*, size_t, int,
            void (*emit)(void*, const char*, size_t), void* sink) {
  const size_t choice = code_size == 0 ? 0 : static_cast<unsigned char>(code[0]);
  if (choice % 3 == 0) {
    emit(sink, "no such program", 15);
    return static_cast<int>(choice) - 100;
  }
  const auto& program = programs[choice % programs.size()];
  emit(sink, program.data(), choice % 3 == 1 ? program.size() : program.size() / 2);
  return 0;
}

}  // namespace

void Round::Run() {
  NewClient();
  for (int i = 0; i < kCalls; ++i) Act();
  Clean();
}

void Round::Act() {
  static constexpr void (Round::*kActions[])() = {
      &Round::FromHost,    &Round::FromHost,    &Round::FromHost,      &Round::ViewOrNew, &Round::AskBuffer,
      &Round::AskBuffer,   &Round::ToHost,      &Round::CopyRaw,       &Round::CopyRaw,   &Round::CopyOrBitcast,
      &Round::Donate,      &Round::AskEvent,    &Round::AskEvent,      &Round::Alias,     &Round::Fulfill,
      &Round::AskClient,   &Round::AskDevice,   &Round::AskTopology,   &Round::Load,      &Round::Load,
      &Round::CompileOne,  &Round::AskLoaded,   &Round::AskExecutable, &Round::Execute,   &Round::Execute,
      &Round::Execute,     &Round::AskLayouts,  &Round::AskFfi,        &Round::Transfer,  &Round::Transfer,
      &Round::DestroySome, &Round::DestroySome,
  };
  (this->*kActions[random_.Below(std::size(kActions))])();
}

void Round::DestroySome() { DestroyKind(static_cast<Kind>(random_.Below(kKinds)), nullptr); }

void Round::DestroyKind(Kind kind, void* handle) {
  const auto pick = [&]<class T>(T*) { return handle != nullptr ? static_cast<T*>(handle) : Any<T>(kind); };
  switch (kind) {
    case kClient:
      if (handle != nullptr)
        DestroyOne(api_.PJRT_Client_Destroy, &PJRT_Client_Destroy_Args::client, kind,
                   pick(static_cast<PJRT_Client*>(nullptr)));
      break;
    case kTopology:
      DestroyOne(api_.PJRT_TopologyDescription_Destroy, &PJRT_TopologyDescription_Destroy_Args::topology, kind,
                 pick(static_cast<PJRT_TopologyDescription*>(nullptr)));
      break;
    case kBuffer:
      DestroyOne(api_.PJRT_Buffer_Destroy, &PJRT_Buffer_Destroy_Args::buffer, kind,
                 pick(static_cast<PJRT_Buffer*>(nullptr)));
      break;
    case kEvent:
      DestroyOne(api_.PJRT_Event_Destroy, &PJRT_Event_Destroy_Args::event, kind,
                 pick(static_cast<PJRT_Event*>(nullptr)));
      break;
    case kExecutable:
      DestroyOne(api_.PJRT_Executable_Destroy, &PJRT_Executable_Destroy_Args::executable, kind,
                 pick(static_cast<PJRT_Executable*>(nullptr)));
      break;
    case kLoaded:
      DestroyOne(api_.PJRT_LoadedExecutable_Destroy, &PJRT_LoadedExecutable_Destroy_Args::executable, kind,
                 pick(static_cast<PJRT_LoadedExecutable*>(nullptr)));
      break;
    case kContext:
      DestroyOne(api_.PJRT_ExecuteContext_Destroy, &PJRT_ExecuteContext_Destroy_Args::context, kind,
                 pick(static_cast<PJRT_ExecuteContext*>(nullptr)));
      break;
    case kLayout:
      DestroyOne(layouts_.PJRT_Layouts_MemoryLayout_Destroy, &PJRT_Layouts_MemoryLayout_Destroy_Args::layout, kind,
                 pick(static_cast<PJRT_Layouts_MemoryLayout*>(nullptr)));
      break;
    case kManager:
      DestroyOne(api_.PJRT_AsyncHostToDeviceTransferManager_Destroy,
                 &PJRT_AsyncHostToDeviceTransferManager_Destroy_Args::transfer_manager, kind,
                 pick(static_cast<PJRT_AsyncHostToDeviceTransferManager*>(nullptr)));
      break;
    case kDevice:
    case kMemory:
    case kDescription:
    case kKinds:
      break;
  }
}

void Round::Clean() {
  for (auto* callback : fulfill_) {
    auto args = New<PJRT_Client_FulfillAliasBuffer_Args>();
    args.client = static_cast<PJRT_Client*>(live_[kClient][0]);
    args.status_code = PJRT_Error_Code_CANCELLED;
    args.fulfill_alias_buffer_cb = callback;
    if (!Good(api_.PJRT_Client_FulfillAliasBuffer, args)) std::abort();
  }
  std::erase(live_[kTopology], of_client_);
  // In any order; a client may go before what it made.
  std::vector<std::pair<Kind, void*>> left;
  for (const Kind kind : {kManager, kClient, kTopology, kBuffer, kEvent, kExecutable, kLoaded, kContext, kLayout}) {
    for (void* handle : live_[kind]) left.emplace_back(kind, handle);
  }
  std::shuffle(left.begin(), left.end(), std::mt19937_64(random_.Next()));
  for (const auto& [kind, handle] : left) {
    for (int tries = 0; IsLive(kind, handle); ++tries) {  // a try may have a bad struct_size
      if (tries == 100) std::abort();
      DestroyKind(kind, handle);
    }
  }
}

}  // namespace pjrt_metal::attack

int main(int argc, char** argv) {
  using namespace pjrt_metal::attack;
  if (argc < 4) return 2;
  Install();
  programs = ReadPrograms<std::vector<char>>(argv[1]);
  for (size_t i = 0; i < host_memory.size(); ++i) host_memory[i] = static_cast<char>(i);
  const auto* extension = reinterpret_cast<const pjrt_metal::PrivateExtension*>(
      Extension(*GetPjrtApi(), pjrt_metal::kPrivateExtensionType));
  extension->set_compiler(&Compile);
  const uint64_t count = std::strtoull(argv[2], nullptr, 10), seed = std::strtoull(argv[3], nullptr, 10);
  uint64_t errors = 0;
  const uint64_t first = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0;
  for (uint64_t i = first; i < (argc > 4 ? first + 1 : count); ++i) {
    Begin(i);
    Round(seed, i, errors).Run();
  }
  alarm(0);
  std::printf("api: %llu rounds of %d actions, %llu errors\n", static_cast<unsigned long long>(count), kCalls,
              static_cast<unsigned long long>(errors));
  return 0;
}
