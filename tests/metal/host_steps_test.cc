// Host steps among a submission's commands: their order, what waits for them, and their errors.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "csrc/metal/encoder.h"
#include "tests/metal/submissions.h"

namespace pjrt_metal::metal {
namespace {

void HostStepsRunInOrder() {
  Fixture f;
  auto encoder = f.device->NewEncoder();
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> steps = 0;
  const auto step = [&](int number, float expected) {
    encoder->Host([&, number, expected] {
      if (steps++ != number || Floats(f.c)[2] != expected || std::this_thread::get_id() == caller) {
        throw Internal("step " + std::to_string(number) + " came too early or too late");
      }
      Floats(f.b)[1] += 1.0f;
    });
  };
  Floats(f.c)[2] = 0.0f;
  {
    const Paused paused;
    step(0, 0.0f);
    f.Add(*encoder, 1.0f);  // 1 + 3
    step(1, 4.0f);
    step(2, 4.0f);
    f.Add(*encoder, 1.0f);  // 1 + 5
    step(3, 6.0f);
    for (int i = 0; i < 100; ++i) f.Add(*encoder, 1.0f);  // 1 + 6
    step(4, 7.0f);
    // Encoding did not wait for the GPU, which has not begun.
    EXPECT(steps <= 1);
  }
  EXPECT(!Finish(*encoder));
  EXPECT(steps == 5);
}

// What is behind a host step is encoded, but not given to Metal, which would end a wait that is long.
void NothingPassesAHostStep() {
  Log log;
  Fixture f;
  std::promise<void> go;
  auto encoder = f.device->NewEncoder();
  encoder->Host([&] {
    go.get_future().wait();
    Floats(f.a)[1] = 5.0f;
  });
  f.Add(*encoder, 1.0f);
  encoder->Commit(log.Entry(0));
  for (int i = 1; i < 4; ++i) Submit(f, log, i, 70);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT(FakeCommitted() == 0 && log.Wait(0).empty());
  go.set_value();
  EXPECT(log.InOrder(4) && log.errors().empty());
  EXPECT(Floats(f.c)[2] == 11.0f);
}

// A host step may wait for the submissions before its own.
void HostStepsWaitForEarlierSubmissions() {
  Log log;
  Fixture f;
  const long committed = FakeCommitted();
  {
    const Paused paused;
    for (int i = 0; i < 4; ++i) Submit(f, log, i);
    auto encoder = f.device->NewEncoder();
    f.Add(*encoder, 4.0f);
    encoder->Host([&] { log.Wait(4); });
    encoder->Commit(log.Entry(4));
  }
  EXPECT(log.InOrder(5) && log.errors().empty());
  EXPECT(FakeCommitted() - committed == 3);
}

void HostErrors() {
  Log log;
  Fixture f;
  bool skipped = true;
  {
    auto encoder = f.device->NewEncoder();
    encoder->Host([] { throw InvalidArgument("the matrix is singular"); });
    encoder->Host([&] { skipped = false; });
    f.Add(*encoder, 1.0f);
    encoder->Commit(log.Entry(0));
    auto other = f.device->NewEncoder();
    other->Host([] { throw std::runtime_error("of another type"); });
    other->Commit(log.Entry(1));
    Submit(f, log, 2);
  }
  EXPECT(log.InOrder(3) && skipped);
  const std::vector<Error> errors = log.errors();
  EXPECT(errors.size() == 2);
  EXPECT(Has(errors[0], Code::kInvalidArgument, {"the matrix is singular"}));
  EXPECT(Has(errors[1], Code::kInternal, {"host step", "of another type"}));
  EXPECT(Floats(f.c)[2] == 5.0f);
  auto encoder = f.device->NewEncoder();
  encoder->Host([] { throw InvalidArgument("seen by Sync"); });
  EXPECT(Has(Thrown([&] { encoder->Sync(); }), Code::kInvalidArgument, {"seen by Sync"}));
}

void HostStepsAfterGpuErrorsAreSkipped() {
  Fixture f;
  FakeFail("run");
  auto encoder = f.device->NewEncoder();
  bool ran = false;
  f.Add(*encoder, 1.0f);
  encoder->Host([&] { ran = true; });
  f.Add(*encoder, 1.0f);
  const auto error = Finish(*encoder);
  EXPECT(error && Has(*error, Code::kResourceExhausted, {"Insufficient Memory"}));
  EXPECT(!ran);
}

// An exception ends a submission of which a part is running: its memory is free afterwards.
void AbandonedSubmissions() {
  Fixture f;
  std::atomic<bool> ran = false;
  {
    auto encoder = f.device->NewEncoder();
    for (int i = 0; i < 70; ++i) f.Add(*encoder, 1.0f);
    encoder->Host([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ran = true;
    });
    for (int i = 0; i < 70; ++i) f.Add(*encoder, 2.0f);
  }
  EXPECT(ran);
  EXPECT(Floats(f.c)[2] == 5.0f);
  const long committed = FakeCommitted();
  {
    auto encoder = f.device->NewEncoder();
    f.Add(*encoder, 7.0f);
  }
  EXPECT(FakeCommitted() == committed);  // of a short one nothing runs
}

constexpr Check kChecks[] = {
    {"host_steps_run_in_order", HostStepsRunInOrder},
    {"nothing_passes_a_host_step", NothingPassesAHostStep},
    {"host_steps_wait_for_earlier_submissions", Promptly<HostStepsWaitForEarlierSubmissions>},
    {"host_errors", HostErrors},
    {"host_steps_after_gpu_errors_are_skipped", HostStepsAfterGpuErrorsAreSkipped},
    {"abandoned_submissions", AbandonedSubmissions},
};

}  // namespace
}  // namespace pjrt_metal::metal

int main(int, char** arguments) { return pjrt_metal::metal::RunAgainstFake(arguments[1], pjrt_metal::metal::kChecks); }
