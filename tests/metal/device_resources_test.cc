// What a Metal device keeps and gives back, against the fake Metal: archives on disk, residency, memory pressure,
// captures. Run by test_device_resources.py, one check a process, with a folder of the check's own.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "csrc/metal/encoder.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/hash.h"
#include "tests/metal/fixture.h"

namespace pjrt_metal::metal {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr int64_t kWorkingSet = int64_t{8} << 30;  // the fake's

std::string folder;  // PJRT_METAL_CACHE_DIR is in it

std::string Cache() { return folder + "/cache"; }

KernelSource Kernel(const std::string& name, uint32_t threads = 0) {
  return {name, "kernel void " + name + "() {}", {}, false, threads};
}

// Compiles it as a new process would; returns how many pipelines were not in an archive.
int Compiled(const KernelSource& kernel) {
  const int before = FakePipelinesCompiled();
  Only()->Compile("// preamble", std::span(&kernel, 1));
  return FakePipelinesCompiled() - before;
}

// Archives with their hashes, and what was left under other names. (The fake keeps kernels there too.)
std::vector<std::string> Files() {
  std::vector<std::string> files;
  if (!std::filesystem::exists(Cache())) return files;
  for (const auto& entry : std::filesystem::directory_iterator(Cache())) {
    const std::string path = entry.path();
    if (!path.ends_with(".so") && !path.ends_with("/trimmed")) files.push_back(path);
  }
  return files;
}

// The only archive there is.
std::string Archive() {
  std::string found;
  for (const std::string& file : Files()) {
    if (!file.ends_with(".mtlarchive")) continue;
    EXPECT(found.empty());
    found = file;
  }
  EXPECT(!found.empty());
  return found;
}

void Write(const std::string& path, std::string_view text) { EXPECT(WriteFile(path, text) == 0); }

// Writes it as an archive whose hash is right.
void WriteSound(const std::string& path, const std::string& text) {
  const Digest hash = Hasher().Add(text).Finish();
  Write(path, text);
  Write(path + ".hash", {reinterpret_cast<const char*>(hash.data()), hash.size()});
}

// --- Archives ---

void ArchivesAreUsed() {
  EXPECT(Compiled(Kernel("k_one")) == 1);
  EXPECT(Compiled(Kernel("k_one")) == 0);
  EXPECT(Compiled(Kernel("k_one", 256)) == 1);
  EXPECT(Compiled(Kernel("k_two")) == 1);
  EXPECT(Files().size() == 6);  // and nothing temporary
  struct stat info;
  EXPECT(stat(Cache().c_str(), &info) == 0 && (info.st_mode & 0777) == 0700);
  // Another system's compiler may make other code.
  FakeMacos(14);
  EXPECT(Compiled(Kernel("k_one")) == 1);
}

void ThreadsAreLimited() {
  const auto device = Only();
  const auto most = [&](uint32_t threads) {
    const KernelSource kernel = Kernel("k_one", threads);
    return static_cast<const MetalPipeline&>(*device->Compile("", std::span(&kernel, 1))[0]).max_threads;
  };
  EXPECT(most(256) == 256 && most(0) == 1024 && most(512) == 512);
}

void BadArchivesAreReplaced() {
  EXPECT(Compiled(Kernel("k_one")) == 1);
  const std::string archive = Archive();
  const std::string sound = *ReadFile(archive);
  const auto replaced = [&] {
    return Compiled(Kernel("k_one")) == 1 && *ReadFile(archive) == sound && Compiled(Kernel("k_one")) == 0;
  };
  Write(archive, sound.substr(0, sound.size() - 1));
  EXPECT(replaced());
  Write(archive, "");
  EXPECT(replaced());
  EXPECT(unlink((archive + ".hash").c_str()) == 0);
  EXPECT(replaced());
  WriteSound(archive, "no archive of Metal's");
  EXPECT(replaced());
  WriteSound(archive, "fake archive\nk_other\n");
  EXPECT(replaced());
  EXPECT(Files().size() == 2);
}

void ArchivesNeverFailACompile() {
  FakeFail("disk");
  EXPECT(Compiled(Kernel("k_one")) == 1);
  FakeFail("archive");
  EXPECT(Compiled(Kernel("k_one")) == 1);
  EXPECT(Files().empty());
  FakeFail("");
  EXPECT(chmod(Cache().c_str(), 0777) == 0);  // others may write there: not to be trusted
  EXPECT(Compiled(Kernel("k_one")) == 1);
  EXPECT(Files().empty());
  Write(folder + "/file", "");
  setenv("PJRT_METAL_CACHE_DIR", (folder + "/file/cache").c_str(), 1);
  EXPECT(Compiled(Kernel("k_one")) == 1);
}

void NoArchivesWhereTheyCannotBe() {
  setenv("MTL_SHADER_VALIDATION", "1", 1);
  EXPECT(Compiled(Kernel("k_one")) == 1);
  setenv("MTL_SHADER_VALIDATION", "0", 1);
  FakeFail("virtual");
  EXPECT(Compiled(Kernel("k_one")) == 1);
  EXPECT(Files().empty());
}

// --- Memory ---

void WorkingSetIsKept() {
  const auto device = Only();
  FakeUseElsewhere(kWorkingSet - static_cast<int64_t>(2 * kMiB));
  const AllocationRef fits = device->Allocate(kMiB);
  EXPECT(Has(Thrown([&] { device->Allocate(kMiB + 1); }), Code::kResourceExhausted,
             {"1048577 bytes", "8588886016 of the GPU's working set of 8589934592"}));
  FakeUseElsewhere(2 * kWorkingSet);
  EXPECT(Has(Thrown([&] { device->Allocate(1); }), Code::kResourceExhausted, {"1 bytes"}));
}

void CachedMemoryIsGivenUpBeforeAnError() {
  const auto device = Only();
  const auto allocator = std::make_shared<Allocator>(device.get(), kWorkingSet);
  allocator->Allocate(kMiB, "arena of jit_f").reset();
  EXPECT(allocator->stats().pool_bytes == static_cast<int64_t>(kMiB));
  FakeUseElsewhere(kWorkingSet - static_cast<int64_t>(5 * kMiB / 2));
  // Only without the cached memory does it fit.
  const AllocationRef output = allocator->Allocate(2 * kMiB, "output of jit_f");
  EXPECT(allocator->stats().pool_bytes == 0);
  const Error error = Thrown([&] { allocator->Allocate(kMiB, "argument"); });
  EXPECT(Has(error, Code::kResourceExhausted,
             {"out of memory: 1.0 MiB for argument with 2.0 MiB in use", "2.0 MiB in 1 arrays: output of jit_f",
              "Apple Fake: no memory for a buffer of 1048576 bytes"}));
  FakeUseElsewhere(0);
  FakeFail("allocate");
  EXPECT(Has(Thrown([&] { allocator->Allocate(100, "argument"); }), Code::kResourceExhausted,
             {"out of memory: 0.0 MiB for argument", "output of jit_f"}));
  FakeFail("");
  allocator->Allocate(kMiB, "argument");
  allocator->ReleaseCached();
}

void MemoryPressure() {
  EXPECT(!FakeMemoryPressure());
  auto device = Only();
  const auto allocator = std::make_shared<Allocator>(device.get(), kWorkingSet);
  int calls = 0;
  device->OnMemoryPressure([&] {
    ++calls;
    allocator->ReleaseCached();
  });
  AllocationRef held = allocator->Allocate(kMiB, "held");
  allocator->Allocate(2 * kMiB, "arena").reset();
  EXPECT(FakeAllocated() == 3 * kMiB);
  EXPECT(FakeMemoryPressure() && calls == 1);
  EXPECT(FakeAllocated() == kMiB && allocator->stats().pool_bytes == 0);
  held.reset();
  allocator->ReleaseCached();
  device.reset();
  EXPECT(FakeMemoryPressure() && calls == 1);
}

// --- Residency ---

void MemoryIsResident() {
  auto device = Only();
  AllocationRef large = device->Allocate(kMiB), small = device->Allocate(100);
  EXPECT(FakeResident() == 0);
  device->NewEncoder();
  EXPECT(FakeResident() == 2 && FakeResidencyCommits() == 1);
  device->NewEncoder();
  EXPECT(FakeResidencyCommits() == 1);
  large.reset();
  EXPECT(FakeAllocated() == kMiB + 100);
  // What goes is freed before more is asked for.
  large = device->Allocate(100);
  EXPECT(FakeAllocated() == 200 && FakeResident() == 1 && FakeResidencyCommits() == 2);
  // Memory may outlive the device.
  device.reset();
  EXPECT(FakeResident() == 0);
}

// What the allocator only keeps leaves the set after a beat, and comes back when it is handed out.
void IdleMemoryIsNotResident() {
  const auto device = Only();
  const auto allocator = std::make_shared<Allocator>(device.get(), kWorkingSet);
  AllocationRef used = allocator->Allocate(kMiB, "used"), kept = allocator->Allocate(2 * kMiB, "kept");
  device->NewEncoder();
  EXPECT(FakeResident() == 2);
  kept.reset();
  const auto wait_for = [](int resident) {
    for (int i = 0; i < 500 && FakeResident() != resident; ++i) usleep(10000);
    return FakeResident() == resident;
  };
  EXPECT(wait_for(1) && FakeAllocated() == 3 * kMiB);
  kept = allocator->Allocate(2 * kMiB, "again");
  device->NewEncoder();
  EXPECT(FakeResident() == 2);
  // Freed while it is out of the set, and while it is in.
  kept.reset();
  EXPECT(wait_for(1));
  used.reset();
  allocator->ReleaseCached();
  device->Allocate(1);
  EXPECT(FakeAllocated() == 1 && FakeResident() == 0);
}

// It is asked for again while there are submissions: the system gives up what was asked for long ago.
void ResidencyIsKeptAlive() {
  const auto device = Only();
  const AllocationRef memory = device->Allocate(kMiB);
  usleep(1200000);
  EXPECT(FakeResidencyRequests() == 0);  // nobody uses it yet
  device->NewEncoder();
  for (int i = 0; i < 500 && FakeResidencyRequests() < 3; ++i) usleep(10000);
  EXPECT(FakeResidencyRequests() >= 3 && FakeResidencyCommits() == 1);
}

void ResidencyCanBeSwitchedOff() {
  setenv("PJRT_METAL_RESIDENCY", "0", 1);
  const auto device = Only();
  AllocationRef memory = device->Allocate(kMiB);
  device->NewEncoder()->Sync();
  EXPECT(FakeResident() == 0 && FakeResidencyCommits() == 0);
  memory.reset();
  EXPECT(FakeAllocated() == 0);
}

// Memory that is lent is not the GPU's: it may be as much as the working set.
void WrappedMemoryIsNotCounted() {
  const auto device = Only();
  const auto page = static_cast<size_t>(getpagesize());
  FakeUseElsewhere(kWorkingSet - static_cast<int64_t>(2 * kMiB));
  void* memory = mmap(nullptr, 4 * kMiB + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  AllocationRef wrapped = device->Wrap(memory, 4 * kMiB);
  EXPECT(wrapped != nullptr && FakeWrapped() == 4 * kMiB);
  const AllocationRef fits = device->Allocate(kMiB);
  EXPECT(Has(Thrown([&] { device->Allocate(kMiB + 1); }), Code::kResourceExhausted, {"1048577 bytes"}));
  wrapped.reset();
  EXPECT(FakeWrapped() == 0);
  EXPECT(Has(Thrown([&] { device->Allocate(kMiB + 1); }), Code::kResourceExhausted, {"1048577 bytes"}));
  munmap(memory, 4 * kMiB + page);
}

// At most half of the limit, the oldest goes first; what came last stays.
void TheCacheIsCapped() {
  const auto device = Only();
  const auto allocator = std::make_shared<Allocator>(device.get(), 16 * kMiB);
  const auto kept = [&] {
    device->NewEncoder();  // what was dropped leaves the residency set
    EXPECT(FakeAllocated() == allocator->stats().pool_bytes + allocator->stats().bytes_in_use);
    return static_cast<size_t>(allocator->stats().pool_bytes) / kMiB;
  };
  AllocationRef a = allocator->Allocate(3 * kMiB, "a"), b = allocator->Allocate(4 * kMiB, "b"),
                c = allocator->Allocate(2 * kMiB, "c");
  a.reset();
  b.reset();
  EXPECT(kept() == 7);
  c.reset();
  EXPECT(kept() == 6);
  allocator->Allocate(10 * kMiB, "arena").reset();
  EXPECT(kept() == 10);
  allocator->Allocate(kMiB, "d").reset();
  EXPECT(kept() == 1);
  allocator->ReleaseCached();
}

void WithoutResidencySets() {
  for (const int macos : {15, 14}) {
    FakeMacos(macos);
    FakeFail(macos == 15 ? "residency" : "");
    const auto device = Only();
    AllocationRef memory = device->Allocate(kMiB);
    device->NewEncoder();
    EXPECT(FakeResidencyCommits() == 0);
    memory.reset();
    EXPECT(FakeAllocated() == 0);
  }
}

// --- Captures ---

void CapturesUntilTheDeviceGoes() {
  const std::string path = folder + "/work.gputrace";
  setenv("PJRT_METAL_CAPTURE", path.c_str(), 1);
  auto device = Only();
  auto again = Only();  // another client: the recording goes on
  device->NewEncoder()->Sync();
  EXPECT(access(path.c_str(), F_OK) != 0);
  device.reset();
  EXPECT(access(path.c_str(), F_OK) == 0);
  again.reset();
  EXPECT(Has(Thrown(Only), Code::kInvalidArgument, {"exists; Metal replaces no document"}));
}

void CapturesUntilTheEnd() {
  const std::string path = folder + "/work.gputrace";
  setenv("PJRT_METAL_CAPTURE", path.c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    Only().release()->NewEncoder()->Sync();
    exit(FakeViolations()[0] == 0 ? 0 : 1);
  }
  int status = 1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(access(path.c_str(), F_OK) == 0);
}

void RefusedCaptures() {
  setenv("PJRT_METAL_CAPTURE", (folder + "/work").c_str(), 1);
  EXPECT(Has(Thrown(Only), Code::kInvalidArgument, {"/work: the name must end in .gputrace"}));
  setenv("PJRT_METAL_CAPTURE", (folder + "/work.gputrace").c_str(), 1);
  for (const char* failure : {"capture", "destination"}) {
    FakeFail(failure);
    EXPECT(Has(Thrown(Only), Code::kFailedPrecondition, {"Metal cannot record: ", "METAL_CAPTURE_ENABLED=1"}));
  }
}

constexpr Check kChecks[] = {
    {"archives_are_used", ArchivesAreUsed},
    {"threads_are_limited", ThreadsAreLimited},
    {"bad_archives_are_replaced", BadArchivesAreReplaced},
    {"archives_never_fail_a_compile", ArchivesNeverFailACompile},
    {"no_archives_where_they_cannot_be", NoArchivesWhereTheyCannotBe},
    {"working_set_is_kept", WorkingSetIsKept},
    {"cached_memory_is_given_up_before_an_error", CachedMemoryIsGivenUpBeforeAnError},
    {"memory_pressure", MemoryPressure},
    {"memory_is_resident", MemoryIsResident},
    {"idle_memory_is_not_resident", IdleMemoryIsNotResident},
    {"residency_is_kept_alive", ResidencyIsKeptAlive},
    {"residency_can_be_switched_off", ResidencyCanBeSwitchedOff},
    {"wrapped_memory_is_not_counted", WrappedMemoryIsNotCounted},
    {"the_cache_is_capped", TheCacheIsCapped},
    {"without_residency_sets", WithoutResidencySets},
    {"captures_until_the_device_goes", CapturesUntilTheDeviceGoes},
    {"captures_until_the_end", CapturesUntilTheEnd},
    {"refused_captures", RefusedCaptures},
};

}  // namespace
}  // namespace pjrt_metal::metal

int main(int count, char** arguments) {
  using namespace pjrt_metal::metal;
  if (count != 3) return 2;
  folder = arguments[2];
  setenv("PJRT_METAL_CACHE_DIR", Cache().c_str(), 1);
  return RunAgainstFake(arguments[1], kChecks);
}
