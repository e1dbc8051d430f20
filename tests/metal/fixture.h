// What the programs that drive csrc/metal against the fake Metal share; one check a process.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "csrc/metal/metal_device.h"
#include "tests/checks.h"
#include "tests/metal/fake/fake.h"

namespace pjrt_metal::metal {

inline const KernelSource kAdd = {
    "k_add",
    R"(kernel void k_add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                      device float* out [[buffer(2)]], constant float& scale [[buffer(3)]],
                      uint3 tid [[thread_position_in_grid]]) {
  out[tid.x] = a[tid.x] + scale * b[tid.x];
})",
    {ParamKind::kInput, ParamKind::kInput, ParamKind::kOutput, ParamKind::kArgs, ParamKind::kThreadPositionInGrid},
    false};
inline constexpr Grid kGrid = {{100, 1, 1}, {0, 0, 0}};

inline std::unique_ptr<Device> Only() {
  auto devices = Discover();
  EXPECT(devices.size() == 1);
  return std::move(devices[0]);
}

inline float* Floats(const AllocationRef& allocation) { return reinterpret_cast<float*>(allocation->data()); }

inline std::span<const std::byte> Bytes(const float& value) { return std::as_bytes(std::span(&value, 1)); }

inline std::optional<Error> Finish(Encoder& encoder) {
  std::promise<std::optional<Error>> done;
  encoder.Commit([&](std::optional<Error> error) { done.set_value(std::move(error)); });
  return done.get_future().get();
}

template <typename Function>
Error Thrown(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("nothing was thrown");
}

inline bool Has(const Error& error, Code code, std::initializer_list<const char*> texts) {
  for (const char* text : texts) {
    if (std::strstr(error.what(), text) == nullptr) {
      std::fprintf(stderr, "no '%s' in: %s\n", text, error.what());
      return false;
    }
  }
  return error.code() == code;
}

// Two inputs of 100 floats, an output of 101, and the kernel.
struct Fixture {
  std::unique_ptr<Device> device = Only();
  AllocationRef a = device->Allocate(400), b = device->Allocate(400), c = device->Allocate(404);
  PipelineRef add = device->Compile("// preamble", std::span(&kAdd, 1))[0];
  Fixture() {
    for (int i = 0; i < 100; ++i) {
      Floats(a)[i] = static_cast<float>(i);
      Floats(b)[i] = 2.0f * static_cast<float>(i);
    }
  }
  void Add(Encoder& encoder, float scale, const Grid& grid = kGrid) {
    const Binding buffers[] = {{a.get(), 0}, {b.get(), 0}, {c.get(), 4}};
    encoder.Dispatch(*add, buffers, Bytes(scale), grid);
  }
};

// Runs the check called `name`; returns the process's exit status.
inline int RunAgainstFake(const std::string& name, std::span<const Check> checks) {
  const int status = RunCheck(name, {checks});
  // Handlers and the fake's GPU thread release their objects a little after `done`.
  for (int i = 0; i < 1000 && FakeLive() != 0; ++i) usleep(1000);
  const bool clean = FakeLive() == 0;
  if (!clean) std::fprintf(stderr, "leak: %s\n", FakeLiveNames());
  std::fputs(FakeViolations(), stderr);
  return clean && FakeViolations()[0] == 0 ? status : 1;
}

}  // namespace pjrt_metal::metal
