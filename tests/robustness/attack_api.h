// One round of calls of the C API (attack_api.cc): its handles, and how it calls. What it calls stands in the files
// attack_api_*.cc, by what is called.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <memory>
#include <vector>

#include "csrc/pjrt/private_extension.h"
#include "tests/robustness/attack.h"

namespace pjrt_metal::attack {

// The host's memory behind every pointer to data; no array that is accepted and small is longer.
constexpr size_t kHostBytes = 1 << 19;
alignas(4096) inline std::array<char, kHostBytes> host_memory;

inline std::vector<std::vector<char>> programs;  // of the corpus

enum Kind {
  kClient,
  kDevice,
  kMemory,
  kDescription,
  kTopology,
  kBuffer,
  kEvent,
  kExecutable,
  kLoaded,
  kContext,
  kLayout,
  kManager,
  kKinds
};

inline const PJRT_Extension_Base* Extension(const PJRT_Api& api, int type) {
  for (const PJRT_Extension_Base* e = api.extension_start; e != nullptr; e = e->next) {
    if (static_cast<int>(e->type) == type) return e;
  }
  std::abort();
}

class Round {
 public:
  Round(uint64_t seed, uint64_t number, uint64_t& errors)
      : api_(*GetPjrtApi()),
        layouts_(*reinterpret_cast<const PJRT_Layouts_Extension*>(Extension(api_, PJRT_Extension_Type_Layouts))),
        ffi_(*reinterpret_cast<const PJRT_FFI_Extension*>(Extension(api_, PJRT_Extension_Type_FFI))),
        random_(seed, number),
        errors_(errors) {}

  void Run();

 private:
  // Calls with a struct of the size that it says, or as often with what it should be.
  template <class Args>
  bool Call(PJRT_Error* (*function)(Args*), Args& args) {
    size_t size = sizeof args;
    if (random_.OneIn(12)) {
      const size_t sizes[] = {0, 8, 16, sizeof args - 1, sizeof args + 64, ~size_t{0}, random_.Below(sizeof args)};
      size = sizes[random_.Below(std::size(sizes))];
    }
    if (random_.OneIn(200)) {
      if (Take(api_, function(nullptr)) == 0) std::abort();
      ++errors_;
    }
    args.struct_size = size;
    const size_t room = std::clamp(size, sizeof(size_t), sizeof args);
    void* const exact = std::malloc(room);  // nothing behind the struct may be touched
    std::memcpy(exact, &args, room);
    const int code = Take(api_, function(static_cast<Args*>(exact)));
    std::memcpy(&args, exact, room);
    std::free(exact);
    errors_ += code != 0 ? 1 : 0;
    return code == 0;
  }

  template <class Args>
  bool Good(PJRT_Error* (*function)(Args*), Args& args) {
    args.struct_size = sizeof args;
    return Take(api_, function(&args)) == 0;
  }
  // A handle: mostly a live one of the kind.
  template <class T>
  T* Any(Kind kind) {
    const size_t choice = random_.Below(20);
    if (choice == 0) return nullptr;
    if (choice == 1) return static_cast<T*>(From(dead_[kind]));
    if (choice == 2) return static_cast<T*>(From(live_[random_.Below(kKinds)]));
    if (choice == 3) return static_cast<T*>(From(dead_[random_.Below(kKinds)]));
    return static_cast<T*>(From(live_[kind]));
  }

  void* From(std::vector<void*>& handles) { return handles.empty() ? nullptr : random_.Pick(handles); }
  bool IsLive(Kind kind, const void* handle) const {
    return std::find(live_[kind].begin(), live_[kind].end(), handle) != live_[kind].end();
  }
  void Add(Kind kind, const void* handle) {
    if (handle != nullptr) live_[kind].push_back(const_cast<void*>(handle));
  }
  void Died(Kind kind, void* handle) {
    std::erase(live_[kind], handle);
    dead_[kind].push_back(handle);
    if (dead_[kind].size() > 50) dead_[kind].erase(dead_[kind].begin());
  }
  template <class Args, class T>
  void DestroyOne(PJRT_Error* (*function)(Args*), T* Args::*member, Kind kind, T* handle) {
    auto args = New<Args>();
    args.*member = handle;
    const bool live = IsLive(kind, handle);
    if (Call(function, args) && live) Died(kind, handle);
  }

  // attack_api.cc
  void Act();
  void DestroySome();
  // Destroys `handle`, or any if it is null.
  void DestroyKind(Kind kind, void* handle);
  void Clean();

  // attack_api_arrays.cc
  // Dimensions of an array that fits the host's memory, or that no memory can hold.
  std::vector<int64_t> Dims();
  PJRT_Buffer_Type Type();
  // A layout of `rank`, or of another one; may be null. Points into members.
  PJRT_Buffer_MemoryLayout* Layout(size_t rank);
  bool IsDefined(PJRT_Buffer* buffer);
  size_t Bytes(PJRT_Buffer* buffer);
  // Memory that copies write to, as long as they were told, until the round ends.
  char* Target(size_t size);
  void FromHost();
  void ViewOrNew();
  void Alias();
  void Fulfill();
  template <class Args>
  bool Buffer(PJRT_Error* (*function)(Args*)) {
    auto args = New<Args>();
    args.buffer = Any<PJRT_Buffer>(kBuffer);
    return Call(function, args);
  }
  void AskBuffer();
  void ToHost();
  void CopyRaw();
  void CopyOrBitcast();
  void Donate();
  void Transfer();

  // attack_api_clients.cc
  void NewClient();
  void AskClient();
  void AskDevice();
  void AskTopology();
  void AskLayouts();
  bool IsReady(PJRT_Event* event);
  void AskEvent();

  // attack_api_programs.cc
  void Load();
  void CompileOne();
  void AskLoaded();
  void AskExecutable();
  void Execute();
  void AskFfi();

  const PJRT_Api& api_;
  const PJRT_Layouts_Extension& layouts_;
  const PJRT_FFI_Extension& ffi_;
  Random random_;
  uint64_t& errors_;
  std::array<std::vector<void*>, kKinds> live_, dead_;
  std::vector<PJRT_FulfillAliasBufferCallback*> fulfill_;
  const void* of_client_ = nullptr;
  std::vector<std::unique_ptr<char[]>> targets_;
  std::vector<int64_t> order_;
  PJRT_Buffer_MemoryLayout layout_;
};

}  // namespace pjrt_metal::attack
