// Drives csrc/metal against the fake Metal; run by test_metal_device.py, one check a process.
#include "csrc/metal/metal_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <future>

#include "csrc/metal/encoder.h"
#include "tests/metal/fixture.h"

namespace pjrt_metal::metal {
namespace {

// A kernel that does nothing.
KernelSource Empty(const std::string& name) { return {name, "kernel void " + name + "() {}", {}, false}; }

void Discovery() {
  const auto device = Only();
  const DeviceInfo& info = device->info();
  EXPECT(info.kind == "Apple Fake");
  EXPECT(info.target == "apple8:simd_width=32,threads=1024,threadgroup_bytes=32768,language=32");
  EXPECT(info.platform_version == "Metal, macOS 15.2.1, metal3.2, safe math");
  EXPECT(info.memory_bytes == 1ull << 33 && info.max_buffer_bytes == 1ull << 32);
  EXPECT(!device->runs_on_caller());
  EXPECT(FakeConcurrentCompilation() == 1);
}

// One GPU, by whichever door it comes.
void DiscoveryByEitherDoor() {
  for (const char* shut : {"sandbox", "headless"}) {
    FakeFail(shut);
    EXPECT(Only()->info().kind == "Apple Fake");
  }
  FakeFail("closed");
  std::vector<std::string> refused;
  EXPECT(Discover(&refused).empty());
  EXPECT(refused.size() == 1 && refused[0].starts_with("Metal found no GPU: MTLCreateSystemDefaultDevice"));
}

void OlderSystems() {
  constexpr std::pair<int, const char*> kLanguages[] = {
      {26, "language=40"}, {16, "language=40"}, {15, "language=32"}, {14, "language=31"}, {13, "language=30"}};
  for (const auto& [macos, language] : kLanguages) {
    FakeMacos(macos);
    Fixture fixture;  // the fake checks the math mode and the language version
    EXPECT(fixture.device->info().target.ends_with(language));
  }
  FakeMacos(12);
  std::vector<std::string> refused;
  EXPECT(Discover(&refused).empty());
  EXPECT(refused == std::vector<std::string>{"Apple Fake: macOS 12 is older than macOS 13"});
}

void OtherGpus() {
  FakeFail("family");
  std::vector<std::string> refused;
  EXPECT(Discover(&refused).empty());
  EXPECT(refused == std::vector<std::string>{"Apple Fake: no Apple GPU of family 7 or later"});
}

void DispatchesAndCopies() {
  Fixture f;
  const AllocationRef copied = f.device->Allocate(404);
  auto encoder = f.device->NewEncoder();
  f.Add(*encoder, 0.5f);
  f.Add(*encoder, 10.0f, {{100, 1, 1}, {64, 2, 4}});
  encoder->Copy({f.c.get(), 4}, {copied.get(), 0}, 400);     // words
  encoder->Copy({f.c.get(), 4}, {copied.get(), 3}, 0);       // nothing
  encoder->Copy({copied.get(), 6}, {copied.get(), 397}, 7);  // bytes
  encoder->Copy({f.a.get(), 0}, {f.b.get(), 4}, 6);          // bytes: only the size is odd
  EXPECT(!Finish(*encoder));
  EXPECT(std::memcmp(f.b->data() + 4, f.a->data(), 6) == 0 && Floats(f.b)[3] == 6.0f);
  for (int i = 0; i < 99; ++i) EXPECT(Floats(copied)[i] == 21.0f * static_cast<float>(i));
  EXPECT(std::memcmp(copied->data() + 397, copied->data() + 6, 7) == 0);
}

// Every alignment of both ends, and sizes around the widths that a thread may copy.
void CopiesAtEveryOffset() {
  Fixture f;
  constexpr size_t kBytes = 160;
  const AllocationRef from = f.device->Allocate(kBytes), to = f.device->Allocate(kBytes);
  for (size_t i = 0; i < kBytes; ++i) from->data()[i] = static_cast<std::byte>(i);
  for (const size_t source : {0, 1, 4, 16, 20}) {
    for (const size_t destination : {0, 3, 8, 32}) {
      for (const size_t bytes : {1, 5, 15, 16, 36, 67, 128}) {
        std::memset(to->data(), 0xee, kBytes);
        auto encoder = f.device->NewEncoder();
        encoder->Copy({from.get(), source}, {to.get(), destination}, bytes);
        EXPECT(!Finish(*encoder));
        for (size_t i = 0; i < kBytes; ++i) {
          const bool written = i >= destination && i < destination + bytes;
          EXPECT(to->data()[i] == (written ? from->data()[source + i - destination] : std::byte{0xee}));
        }
      }
    }
  }
}

// Sixteen bytes a thread, in the encoder of the launches around it.
void CopiesAreWideAndInOneEncoder() {
  Fixture f;
  const AllocationRef to = f.device->Allocate(404);
  const long threads = FakeThreads(), encoders = FakeEncoders();
  auto encoder = f.device->NewEncoder();
  f.Add(*encoder, 1.0f);
  encoder->Copy({f.a.get(), 0}, {to.get(), 0}, 400);
  encoder->Copy({f.b.get(), 16}, {to.get(), 400}, 4);
  f.Add(*encoder, 1.0f);
  EXPECT(!Finish(*encoder));
  EXPECT(FakeThreads() - threads == 2 * 100 + 400 / 16 + 1);
  EXPECT(FakeEncoders() - encoders == 1);
}

void SyncMakesEffectsVisible() {
  Fixture f;
  auto encoder = f.device->NewEncoder();
  f.Add(*encoder, 1.0f);
  encoder->Sync();
  EXPECT(Floats(f.c)[100] == 297.0f);
  Floats(f.a)[99] = 1.0f;
  f.Add(*encoder, 1.0f);
  EXPECT(!Finish(*encoder));
  EXPECT(Floats(f.c)[100] == 199.0f);
  // An empty submission sees the ones before it.
  f.Add(*encoder, 2.0f);
  encoder->Commit(nullptr);
  f.device->NewEncoder()->Sync();
  EXPECT(Floats(f.c)[100] == 397.0f);
}

void CompletesInOrder() {
  Fixture f;
  FakeFail("reorder");
  std::atomic<int> order = 0;
  std::promise<void> all;
  bool in_order = true;
  for (int i = 0; i < 4; ++i) {
    auto encoder = f.device->NewEncoder();
    f.Add(*encoder, 1.0f);
    encoder->Commit([&, i](std::optional<Error>) {
      in_order = in_order && order++ == i;
      if (order == 4) all.set_value();
    });
  }
  all.get_future().get();
  EXPECT(in_order);
}

void Wraps() {
  Fixture f;
  const size_t page = static_cast<size_t>(getpagesize());
  void* memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* bytes = static_cast<std::byte*>(memory);
  EXPECT(f.device->Wrap(bytes + 64, 400) == nullptr);
  EXPECT(f.device->Wrap(bytes, 0) == nullptr);
  const AllocationRef wrapped = f.device->Wrap(bytes, page + 1);
  EXPECT(wrapped->data() == bytes && wrapped->size() == page + 1);
  auto encoder = f.device->NewEncoder();
  encoder->Copy({f.a.get(), 0}, {wrapped.get(), 0}, 400);
  encoder->Sync();
  EXPECT(Floats(wrapped)[99] == 99.0f);
  munmap(memory, 2 * page);
}

void CompileErrors() {
  Fixture f;
  const auto compile = [&](const KernelSource& kernel) {
    return Thrown([&] { f.device->Compile("", std::span(&kernel, 1)); });
  };
  const Error broken = compile({"k_bad", "#error planted\nkernel void k_bad() {}", {}, false});
  EXPECT(Has(broken, Code::kInternal,
             {"k_bad: Metal could not compile it: ", "error: #error planted", "(MTLLibraryErrorDomain 3)",
              "xcrun -sdk macosx metal -std=metal3.2 -fno-fast-math"}));
  const std::string path = std::strrchr(broken.what(), ' ') + 1;
  std::FILE* saved = std::fopen(path.c_str(), "r");
  EXPECT(saved != nullptr);
  std::fclose(saved);
  unlink(path.c_str());
  EXPECT(Has(compile({"k_other", kAdd.source, {}, false}), Code::kInternal, {"k_other", "does not define"}));
  EXPECT(Has(compile({"k_double", "", {}, true}), Code::kUnimplemented, {"k_double", "double"}));
  FakeFail("width");
  EXPECT(Has(compile(Empty("k_w")), Code::kInternal, {"64 threads in a SIMD group"}));
  FakeFail("pipeline");
  const Error pipeline = compile(Empty("k_p"));
  EXPECT(
      Has(pipeline, Code::kInternal, {"k_p", "Threadgroup memory size (40000) exceeds the maximum (AGXMetal13_3 2)"}));
  unlink(std::strrchr(pipeline.what(), ' ') + 1);
  // One bad kernel among several, each compiled on its own thread; and the cache still has the
  // first.
  FakeFail("");
  const KernelSource kernels[] = {kAdd, {"k_bad", "#error planted\nkernel void k_bad() {}", {}, false}, kAdd};
  const Error among = Thrown([&] { f.device->Compile("// preamble", kernels); });
  unlink(std::strrchr(among.what(), ' ') + 1);
  EXPECT(f.device->Compile("// preamble", std::span(&kAdd, 1))[0] == f.add);
  EXPECT(f.device->Compile("// other", std::span(&kAdd, 1))[0] != f.add);
}

void LaunchErrors() {
  FakeFail("threads");
  Fixture f;
  auto encoder = f.device->NewEncoder();
  const float scale = 1.0f;
  const Binding two[] = {{f.a.get(), 0}, {f.b.get(), 0}};
  const Binding outside[] = {{f.a.get(), 0}, {f.b.get(), 401}, {f.c.get(), 4}};
  EXPECT(Has(Thrown([&] { encoder->Dispatch(*f.add, two, Bytes(scale), kGrid); }), Code::kInternal,
             {"k_add: launched with 2 buffers and 4 bytes"}));
  EXPECT(Has(Thrown([&] { encoder->Dispatch(*f.add, outside, Bytes(scale), kGrid); }), Code::kInternal,
             {"k_add: offset 401"}));
  EXPECT(Has(Thrown([&] { f.Add(*encoder, 1.0f, {{100, 1, 1}, {32, 32, 1}}); }), Code::kInternal,
             {"k_add: 32x32x1 threads", "512"}));
  EXPECT(Has(Thrown([&] { f.Add(*encoder, 1.0f, {{100, 0, 1}, {0, 0, 0}}); }), Code::kInternal, {"empty grid"}));
  EXPECT(Has(Thrown([&] { encoder->Copy({f.a.get(), 0}, {f.b.get(), 4}, 400); }), Code::kInternal,
             {"copy's destination: offset 4 and 400 bytes"}));
  EXPECT(Has(Thrown([&] { encoder->Copy({f.a.get(), 0}, {f.a.get(), 40}, 80); }), Code::kInternal, {"overlap"}));
  f.Add(*encoder, 1.0f);  // the encoder is left open, as when an exception ends a submission
}

void RunErrors() {
  Fixture f;
  FakeFail("run");
  auto encoder = f.device->NewEncoder();
  f.Add(*encoder, 1.0f);
  const auto error = Finish(*encoder);
  EXPECT(error && Has(*error, Code::kResourceExhausted, {"Insufficient Memory", "(MTLCommandBufferErrorDomain 8)"}));
  f.Add(*encoder, 1.0f);
  EXPECT(Has(Thrown([&] { encoder->Sync(); }), Code::kResourceExhausted, {"Insufficient Memory"}));
  FakeFail("");
  f.Add(*encoder, 1.0f);
  EXPECT(!Finish(*encoder));
}

void AllocationErrors() {
  const auto device = Only();
  EXPECT(device->Allocate(0)->size() == 0);
  EXPECT(Has(Thrown([&] { device->Allocate((1ull << 32) + 1); }), Code::kResourceExhausted, {"4294967297 bytes"}));
  FakeFail("allocate");
  EXPECT(Has(Thrown([&] { device->Allocate(8); }), Code::kResourceExhausted, {"8 bytes"}));
}

void Threadgroups() {
  const auto chosen = [](std::array<uint32_t, 3> grid, uint32_t limit) {
    const uint32_t threads[3] = {grid[0], grid[1], grid[2]};
    const Size size = ChooseThreadgroup(threads, limit);
    return std::array<uint64_t, 3>{size.width, size.height, size.depth};
  };
  using Chosen = std::array<uint64_t, 3>;
  EXPECT((chosen({1, 1, 1}, 1024) == Chosen{1, 1, 1}));
  EXPECT((chosen({1000, 7, 1}, 1024) == Chosen{256, 1, 1}));
  EXPECT((chosen({3, 1000, 5}, 1024) == Chosen{3, 85, 1}));
  EXPECT((chosen({8, 4, 1000}, 64) == Chosen{8, 4, 2}));
}

constexpr Check kChecks[] = {
    {"discovery", Discovery},
    {"discovery_by_either_door", DiscoveryByEitherDoor},
    {"older_systems", OlderSystems},
    {"other_gpus", OtherGpus},
    {"dispatches_and_copies", DispatchesAndCopies},
    {"copies_at_every_offset", CopiesAtEveryOffset},
    {"copies_are_wide_and_in_one_encoder", CopiesAreWideAndInOneEncoder},
    {"sync_makes_effects_visible", SyncMakesEffectsVisible},
    {"completes_in_order", CompletesInOrder},
    {"wraps", Wraps},
    {"compile_errors", CompileErrors},
    {"launch_errors", LaunchErrors},
    {"run_errors", RunErrors},
    {"allocation_errors", AllocationErrors},
    {"threadgroups", Threadgroups},
};

}  // namespace
}  // namespace pjrt_metal::metal

int main(int, char** arguments) { return pjrt_metal::metal::RunAgainstFake(arguments[1], pjrt_metal::metal::kChecks); }
