// Submissions to the Metal device: shared command buffers, hazards, times and errors.
#include "csrc/metal/encoder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tests/metal/submissions.h"

namespace pjrt_metal::metal {
namespace {

// c = a + scale * b, in independent parts of larger buffers: part `to` of `c` from part `from` of `a`.
struct Parts {
  static constexpr size_t kFloats = 100, kBytes = 4 * kFloats, kCount = 8;
  Fixture f;
  AllocationRef memory = f.device->Allocate(kCount * kBytes);
  Parts() { std::fill_n(Floats(memory), kCount * kFloats, 1.0f); }
  Binding Part(size_t part, bool known = true) const {
    return {memory.get(), part * kBytes, known ? kBytes : SIZE_MAX};
  }
  void Add(Encoder& encoder, size_t from, size_t to, bool known = true) const {
    const Binding buffers[] = {Part(from, known), Part(from, known), Part(to, known)};
    encoder.Dispatch(*f.add, buffers, Bytes(kOne), kGrid);
  }
  // Barriers that `encode` makes in one submission.
  template <typename Encode>
  long Barriers(Encode encode) const {
    const long before = FakeBarriers();
    auto encoder = f.device->NewEncoder();
    encode(*encoder);
    EXPECT(!Finish(*encoder));
    return FakeBarriers() - before;
  }
  static constexpr float kOne = 1.0f;
};

void SharesCommandBuffers() {
  Log log;  // outlives the device, which waits for what was submitted
  Fixture f;
  const long before = FakeCommitted();
  {
    const Paused paused;
    for (int i = 0; i < 10; ++i) Submit(f, log, i);
    EXPECT(FakeCommitted() - before == 2);  // the GPU has work; the other eight wait in one
  }
  EXPECT(log.InOrder(10) && log.errors().empty());
  EXPECT(FakeCommitted() - before == 3);
  EXPECT(Floats(f.c)[2] == 19.0f);
}

// Each time that 64 commands are encoded.
void LongBatchesAreCommitted() {
  Log log;
  Fixture f;
  {
    const Paused paused;
    for (int i = 0; i < 2; ++i) Submit(f, log, i);
    Submit(f, log, 2, 128);
    EXPECT(FakeCommitted() == 4);
  }
  EXPECT(log.InOrder(3));
}

// What the compiler makes in parts, so that a watchdog leaves it alone, does not come together again in one command
// buffer: neither of one submission nor of several.
void WorkOfACommandBufferIsBounded() {
  Log log;
  Fixture f;
  const auto submit = [&](int number, std::initializer_list<uint64_t> works) {
    auto encoder = f.device->NewEncoder();
    for (const uint64_t work : works) f.Add(*encoder, 1.0f, {{100, 1, 1}, {0, 0, 0}, work});
    encoder->Commit(log.Entry(number));
  };
  constexpr uint64_t kBillion = 1'000'000'000;
  const long before = FakeCommitted();
  long committed = 0;
  {
    const Paused paused;
    for (int i = 0; i < 2; ++i) submit(i, {100});  // the GPU has work
    EXPECT(FakeCommitted() - before == 2);
    submit(2, {6 * kBillion, 6 * kBillion, 10 * kBillion, UINT64_MAX, UINT64_MAX});
    committed = FakeCommitted() - before;
    submit(3, {4 * kBillion, 4 * kBillion});  // open
    submit(4, {2 * kBillion - 100, 100});     // and full
    submit(5, {6 * kBillion});                // open
    submit(6, {6 * kBillion, 100});           // the last one's must go first
  }
  EXPECT(log.InOrder(7) && log.errors().empty());
  EXPECT(committed == 7);
  EXPECT(FakeCommitted() - before == 10);
}

void OldBatchesAreCommitted() {
  Log log;  // outlives the device, which waits for what was submitted
  Fixture f;
  const long before = FakeCommitted();
  {
    const Paused paused;
    for (int i = 0; i < 3; ++i) Submit(f, log, i);
    EXPECT(FakeCommitted() - before == 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Submit(f, log, 3);
    EXPECT(FakeCommitted() - before == 3);
  }
  EXPECT(log.InOrder(4));
}

void SyncCommitsWhatIsOpen() {
  Log log;
  Fixture f;
  FakePause(1);
  for (int i = 0; i < 4; ++i) Submit(f, log, i);
  auto encoder = f.device->NewEncoder();
  std::thread resume([] {
    while (FakeCommitted() < 3) std::this_thread::yield();
    FakePause(0);
  });
  encoder->Sync();
  resume.join();
  EXPECT(Floats(f.c)[2] == 7.0f);
  EXPECT(log.InOrder(4));
}

void EmptySubmissionsKeepTheirPlace() {
  Log log;  // outlives the device, which waits for what was submitted
  Fixture f;
  const long before = FakeCommitted();
  f.device->NewEncoder()->Commit(log.Entry(0));
  EXPECT(log.InOrder(1));  // nothing was before it
  {
    const Paused paused;
    for (int i = 1; i < 4; ++i) {
      Submit(f, log, 10 * i);
      f.device->NewEncoder()->Commit(log.Entry(10 * i + 1));
    }
    EXPECT(log.InOrder(1));
  }
  EXPECT(log.InOrder(7));
  EXPECT(FakeCommitted() - before == 3);
}

// More command buffers than Metal's queue has: the wait is ours, without the lock. With it, the
// completion that would end the wait could not come.
void ManyCommandBuffers() {
  Log log;
  Fixture f;
  FakePause(1);
  std::atomic<bool> submitted = false;
  std::thread watch([&] {
    while (FakeCommitted() < 30) std::this_thread::yield();
    FakePause(0);
    while (!submitted) {
      if (FakePlaceWaits() > 0) {
        std::fputs("waits inside Metal for one of the queue's places\n", stderr);
        _exit(1);  // it may be for ever
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  Submit(f, log, 0, 200 * 64);
  submitted = true;
  watch.join();
  EXPECT(log.InOrder(1));
  EXPECT(FakePlaceWaits() == 0);
}

// A `done` may submit, however full the queue is.
void SubmitsWhenDone() {
  Log log;
  Fixture f;
  FakePause(1);
  std::atomic<int> left = 100;
  std::function<void(std::optional<Error>)> again = [&](std::optional<Error>) {
    if (--left > 0) {
      auto encoder = f.device->NewEncoder();
      f.Add(*encoder, 1.0f);
      encoder->Commit(again);
    } else {
      log.Entry(0)(std::nullopt);
    }
  };
  again(std::nullopt);
  std::thread other([&] { Submit(f, log, 1, 40 * 64); });
  while (FakeCommitted() < 30) std::this_thread::yield();
  FakePause(0);
  other.join();
  log.Wait(2);
}

void ManyThreads() {
  constexpr int kThreads = 4, kSubmissions = 60;
  Fixture f;
  std::array<AllocationRef, kThreads> results;
  for (AllocationRef& result : results) {
    result = f.device->Allocate(400);
    std::fill_n(Floats(result), 100, 0.0f);
  }
  std::array<Log, kThreads> logs;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kSubmissions; ++i) {
        auto encoder = f.device->NewEncoder();
        const Binding buffers[] = {{results[t].get(), 0}, {f.a.get(), 0}, {results[t].get(), 0}};
        const int launches = i % 7 == 0 ? 100 : 3;
        const float scale = 1.0f / static_cast<float>(launches);
        for (int k = 0; k < launches; ++k) encoder->Dispatch(*f.add, buffers, Bytes(scale), kGrid);
        if (i % 5 == t) encoder->Host([&, t] { Floats(results[t])[0] += 1.0f; });
        if (i % 11 == t) encoder->Sync();
        encoder->Commit(logs[t].Entry(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    EXPECT(logs[t].InOrder(kSubmissions) && logs[t].errors().empty());
    EXPECT(std::abs(Floats(results[t])[99] - 99.0f * kSubmissions) < 1.0f);
    EXPECT(Floats(results[t])[0] == kSubmissions / 5);
  }
}

void IndependentLaunchesHaveNoBarrier() {
  const Parts parts;
  EXPECT(parts.Barriers([&](Encoder& encoder) {
    for (size_t to = 1; to < Parts::kCount; ++to) parts.Add(encoder, 0, to);
  }) == 0);
}

void DependentLaunchesHaveBarriers() {
  const Parts parts;
  const auto barriers = [&](std::initializer_list<std::pair<size_t, size_t>> adds) {
    return parts.Barriers([&](Encoder& encoder) {
      for (const auto& [from, to] : adds) parts.Add(encoder, from, to);
    });
  };
  EXPECT(barriers({{0, 1}, {1, 2}}) == 1);          // reads what was written
  EXPECT(barriers({{0, 1}, {2, 0}}) == 1);          // writes what was read
  EXPECT(barriers({{0, 1}, {2, 1}}) == 1);          // writes what was written
  EXPECT(barriers({{0, 1}, {0, 2}, {1, 3}}) == 1);  // of an earlier one
  EXPECT(barriers({{0, 1}, {1, 2}, {0, 3}}) == 1);  // the barrier was for all before it
  EXPECT(barriers({{0, 1}, {1, 2}, {2, 3}}) == 2);
  // Up to the allocation's end, if the size is not known.
  EXPECT(parts.Barriers([&](Encoder& encoder) {
    parts.Add(encoder, 0, 3);
    parts.Add(encoder, 1, 2, false);
  }) == 1);
  // Between submissions of one command buffer too: each is committed while the GPU has two others.
  Log log;
  const long before = FakeBarriers();
  {
    const Paused paused;
    for (int i = 0; i < 4; ++i) {
      auto encoder = parts.f.device->NewEncoder();
      parts.Add(*encoder, static_cast<size_t>(i), static_cast<size_t>(i) + 1);
      encoder->Commit(log.Entry(i));
    }
  }
  EXPECT(log.InOrder(4));
  EXPECT(FakeBarriers() - before == 1);
}

void CopiesAreOrdered() {
  const Parts parts;
  auto encoder = parts.f.device->NewEncoder();
  parts.Add(*encoder, 0, 1);
  encoder->Copy(parts.Part(1), parts.Part(2), Parts::kBytes);      // words
  encoder->Copy(parts.Part(2), parts.Part(3), Parts::kBytes - 1);  // words and bytes
  encoder->Copy(parts.Part(3), parts.Part(4), Parts::kBytes - 1);  // another, after a barrier
  parts.Add(*encoder, 4, 5);
  if (const auto error = Finish(*encoder)) throw *error;
  EXPECT(Floats(parts.memory)[5 * Parts::kFloats] == 4.0f);
}

// All submissions that a failed command buffer held fail; and the kernel is named.
void ErrorsNameKernels() {
  Log log;
  Fixture f;
  FakeFail("run:3");
  const Label label{"stablehlo.add", "model.py:3", "pointwise", "Pointwise over 100."};
  Grid labelled = kGrid;
  labelled.label = &label;
  auto encoder = f.device->NewEncoder();
  encoder->Copy({f.a.get(), 0}, {f.b.get(), 0}, 400);
  f.Add(*encoder, 1.0f, labelled);
  const auto error = Finish(*encoder);
  EXPECT(error && Has(*error, Code::kInternal,
                      {"PageFault) (MTLCommandBufferErrorDomain 3); fault in kernels pjrt_metal_copy_16, "
                       "k_add (stablehlo.add at model.py:3, schedule pointwise)"}));
  encoder->Copy({f.a.get(), 0}, {f.b.get(), 0}, 400);
  const auto copying = Finish(*encoder);
  EXPECT(copying && Has(*copying, Code::kInternal, {"fault in kernel pjrt_metal_copy_16"}));
  FakeFail("run");
  {
    const Paused paused;
    for (int i = 0; i < 5; ++i) Submit(f, log, i);
  }
  EXPECT(log.InOrder(5) && log.errors().size() == 5);
  EXPECT(Has(log.errors()[4], Code::kResourceExhausted, {"(MTLCommandBufferErrorDomain 8); fault in kernel k_add"}));
  FakeFail("");
  Submit(f, log, 5);
  EXPECT(log.InOrder(6) && log.errors().size() == 5);
}

void DeviceRemoved() {
  for (const char* what : {"run:11", "commandBuffer", "encoder"}) {
    Fixture f;
    Log log;
    FakeFail(what);
    bool ran = false;
    for (int i = 0; i < 40; ++i) {
      auto encoder = f.device->NewEncoder();
      f.Add(*encoder, 1.0f);
      encoder->Host([&] { ran = true; });
      for (int k = 0; k < 100; ++k) f.Add(*encoder, 1.0f);
      encoder->Commit(log.Entry(i));
      f.Add(*encoder, 1.0f);
      EXPECT(Thrown([&] { encoder->Sync(); }).code() == Code::kUnavailable);
    }
    EXPECT(log.InOrder(40) && !ran);
    const std::vector<Error> errors = log.errors();
    EXPECT(errors.size() == 40);
    EXPECT(std::ranges::all_of(errors, [](const Error& error) { return error.code() == Code::kUnavailable; }));
    if (std::strcmp(what, "run:11") == 0) {
      EXPECT(Has(errors[0], Code::kUnavailable, {"Device was removed", "; it held kernel k_add"}));
    }
    FakeFail("");
    Submit(f, log, 40);
    EXPECT(log.InOrder(41) && log.errors().size() == 40);
  }
}

// The log of its command buffers is for test_encoder.py.
void Times() {
  Log log;
  Fixture f;
  const long before = FakeCommitted();
  {
    const Paused paused;
    for (int i = 0; i < 5; ++i) Submit(f, log, i, 2);
  }
  EXPECT(log.InOrder(5) && FakeCommitted() - before == 3);
  auto encoder = f.device->NewEncoder();
  f.Add(*encoder, 1.0f);
  const double seconds = encoder->SyncAndTime();
  EXPECT(seconds > 0.0002 && seconds < 1);
  EXPECT(encoder->SyncAndTime() == 0);
}

constexpr Check kChecks[] = {
    {"shares_command_buffers", Promptly<SharesCommandBuffers>},
    {"long_batches_are_committed", LongBatchesAreCommitted},
    {"work_of_a_command_buffer_is_bounded", Promptly<WorkOfACommandBufferIsBounded>},
    {"old_batches_are_committed", Promptly<OldBatchesAreCommitted>},
    {"sync_commits_what_is_open", SyncCommitsWhatIsOpen},
    {"empty_submissions_keep_their_place", Promptly<EmptySubmissionsKeepTheirPlace>},
    {"many_command_buffers", ManyCommandBuffers},
    {"submits_when_done", SubmitsWhenDone},
    {"many_threads", ManyThreads},
    {"independent_launches_have_no_barrier", IndependentLaunchesHaveNoBarrier},
    {"dependent_launches_have_barriers", Promptly<DependentLaunchesHaveBarriers>},
    {"copies_are_ordered", CopiesAreOrdered},
    {"errors_name_kernels", ErrorsNameKernels},
    {"device_removed", DeviceRemoved},
    {"times", Promptly<Times>},
};

}  // namespace
}  // namespace pjrt_metal::metal

int main(int, char** arguments) { return pjrt_metal::metal::RunAgainstFake(arguments[1], pjrt_metal::metal::kChecks); }
