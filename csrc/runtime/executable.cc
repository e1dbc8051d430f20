#include "csrc/runtime/executable.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "csrc/runtime/forked.h"
#include "csrc/runtime/library_choice.h"
#include "csrc/runtime/log.h"
#include "csrc/runtime/slot_contents.h"

namespace pjrt_metal {
namespace {

constexpr size_t kAlignment = 256;  // as the compiler's arena offsets
// A program that touches at most this many bytes in at most this many launches takes tens of microseconds at
// most on the software device: as long as waking another thread and being woken by it.
constexpr uint64_t kSmallBytes = 256 << 10;
constexpr size_t kSmallSteps = 8;

std::string Describe(DType dtype, std::span<const int64_t> dims) {
  std::string text(Info(dtype).name);
  text += "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ",";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

bool WaitsOnHost(const Sequence& sequence) {
  return std::ranges::any_of(sequence, [](const Step& step) {
    return step.kind == StepKind::kHostCall || step.kind == StepKind::kCase ||
           (step.kind == StepKind::kWhile && step.trip_count < 0) || std::ranges::any_of(step.bodies, WaitsOnHost);
  });
}

// Whether host calls have an order; JAX gives what they take from one program to the next as arrays.
bool HasTokens(const Sequence& sequence) {
  return std::ranges::any_of(sequence, [](const Step& step) {
    return std::ranges::any_of(step.arrays, [](const auto& array) { return array.dtype == DType::kToken; }) ||
           std::ranges::any_of(step.bodies, HasTokens);
  });
}

bool IsSmall(const Program& program, bool runs_on_caller) {
  uint64_t bytes = 0;
  for (const Step& step : program.body) {
    if (step.kind == StepKind::kHostCall || step.kind == StepKind::kWhile || step.kind == StepKind::kCase) return false;
    for (const uint32_t slot : step.slots) bytes += program.slots[slot].bytes;
  }
  return !runs_on_caller || (program.body.size() <= kSmallSteps && bytes <= kSmallBytes);
}

}  // namespace

// One run of a program: what it reads and writes, kept until it has completed.
class Execution {
 public:
  Execution(const LoadedProgram& loaded, std::shared_ptr<const Program> program)
      : loaded_(loaded), program_(std::move(program)), done(std::make_shared<Event>()) {}

  // Runs or encodes everything; the outcome goes into `done`. Never throws.
  void Run(const std::shared_ptr<Execution>& self) {
    const auto start = LogEnabled() ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    for (const EventRef& event : waits) {
      if (!event->IsReady() && !MustAwait(*event)) {
        in_order_.push_back(event);
      } else if (auto error = event->Await()) {
        return Complete(std::move(error));
      }
    }
    try {
      for (const Relayout& r : relayouts) {
        const size_t element = Info(r.dtype).host_bits / 8;
        CopyStrided(r.source->data(), DenseStrides(r.dims, r.from, element), r.destination->data(),
                    DenseStrides(r.dims, r.to, element), r.dims, element);
      }
      if (loaded_.uses_arena_) {
        const std::string tag = "temporaries of " + program_->name;
        // Programs that it calls on the host have their own.
        arena = loaded_.waits_on_host_ ? loaded_.device_->Allocate(program_->arena_bytes, tag)
                                       : loaded_.device_->AllocateArena(program_->arena_bytes, tag);
      }
      Resolve();
      const std::unique_ptr<Encoder> encoder = loaded_.device_->device()->NewEncoder();
      encoder_ = encoder.get();
      if (encoder->checks_contents()) contents_.emplace(*program_, bindings_, *encoder);
      if (contents_) contents_->Begin();
      RunSequence(program_->body);
      if (contents_) contents_->End();
      encoder->Commit([self, start](std::optional<Error> error) {
        if (LogEnabled()) {
          const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
          LogPhase("execute", elapsed.count(),
                   self->program_->name + " (" + std::to_string(self->program_->body.size()) + " steps)");
        }
        self->Complete(std::move(error));
      });
      done->EnqueuedOn(&loaded_.device_->queue());
    } catch (const Error& error) {
      Complete(error);
    } catch (const std::bad_alloc&) {
      Complete(ResourceExhausted("the host is out of memory while running " + program_->name));
    } catch (const std::exception& error) {
      Complete(Internal(std::string("running ") + program_->name + ": " + error.what()));
    }
  }

  // What this device makes before is there when the device gets to it, but the host must wait.
  bool MustAwait(const Event& event) const {
    return loaded_.waits_on_host_ || !relayouts.empty() || !event.IsEnqueuedOn(&loaded_.device_->queue());
  }

  struct Relayout {
    DType dtype;
    std::vector<int64_t> dims, from, to;
    AllocationRef source, destination;
  };

 private:
  const LoadedProgram& loaded_;
  std::shared_ptr<const Program> program_;

 public:
  EventRef done;
  std::vector<EventRef> waits;
  std::vector<AllocationRef> parameters, outputs;
  std::vector<StorageRef> kept;  // storages whose release tells the host something
  std::vector<Relayout> relayouts;
  std::shared_ptr<const FfiUserData> user_data;
  AllocationRef arena;
  // The client may drop the executable while it runs.
  std::shared_ptr<const LoadedProgram> keep_loaded;

 private:
  void Complete(std::optional<Error> error) {
    for (const EventRef& event : in_order_) {
      if (auto input_error = event->Await()) error = std::move(input_error);
    }
    in_order_.clear();
    // Memory goes back before anybody who waits for the event asks for more.
    arena.reset();
    parameters.clear();
    outputs.clear();
    kept.clear();
    relayouts.clear();
    done->Set(std::move(error));
  }

  void Resolve() {
    bindings_.reserve(program_->slots.size());
    for (const Slot& slot : program_->slots) {
      size_t offset = slot.offset;
      Allocation* memory = nullptr;
      switch (slot.kind) {
        case SlotKind::kParameter:
          memory = parameters[slot.index].get();
          break;
        case SlotKind::kOutput:
          memory = outputs[slot.index].get();
          break;
        case SlotKind::kConstant:
          memory = loaded_.constants_.get();
          offset += loaded_.constant_offsets_[slot.index];
          break;
        case SlotKind::kArena:
          memory = arena.get();
          break;
      }
      bindings_.push_back({memory == nullptr ? nullptr : memory->device_allocation(), offset, slot.bytes,
                           SlotContents::Owner(*program_, bindings_.size())});
    }
  }

  const std::byte* Host(uint32_t slot) const { return bindings_[slot].allocation->data() + bindings_[slot].offset; }

  void RunSequence(const Sequence& sequence) {
    for (const Step& step : sequence) RunStep(step);
  }

  void RunStep(const Step& step) {
    switch (step.kind) {
      case StepKind::kLaunch: {
        Binding buffers[31];
        for (size_t i = 0; i < step.slots.size(); ++i) buffers[i] = bindings_[step.slots[i]];
        encoder_->Dispatch(*loaded_.pipelines_[step.kernel], {buffers, step.slots.size()}, step.args, step.grid);
        break;
      }
      case StepKind::kCopy: {
        const Binding& source = bindings_[step.slots[0]];
        const Binding& destination = bindings_[step.slots[1]];
        // A donated parameter's memory may be the output's.
        if (source.allocation->data() + source.offset == destination.allocation->data() + destination.offset) {
          if (contents_) encoder_->SetContents(destination, true);
          break;
        }
        encoder_->Copy(source, destination, program_->slots[step.slots[0]].bytes);
        break;
      }
      case StepKind::kWhile:
        if (step.trip_count >= 0) {
          for (int64_t i = 0; i < step.trip_count; ++i) {
            if (contents_) contents_->Iterate(step);
            RunSequence(step.bodies[1]);
          }
          break;
        }
        while (true) {
          if (contents_) contents_->Iterate(step);
          RunSequence(step.bodies[0]);
          encoder_->Sync();
          if (contents_) contents_->BeforeHostRead(step.slots[0]);
          if (*Host(step.slots[0]) == std::byte{0}) break;
          RunSequence(step.bodies[1]);
        }
        break;
      case StepKind::kCase: {
        encoder_->Sync();
        if (contents_) contents_->BeforeHostRead(step.slots[0]);
        size_t branch = 0;
        if (program_->slots[step.slots[0]].bytes == 1) {
          branch = *Host(step.slots[0]) != std::byte{0} ? 0 : 1;
        } else {
          int32_t index;
          std::memcpy(&index, Host(step.slots[0]), sizeof index);
          branch = index < 0 ? step.bodies.size() : static_cast<size_t>(index);
        }
        RunSequence(step.bodies[std::min(branch, step.bodies.size() - 1)]);
        break;
      }
      case StepKind::kLibrary:
        if (const auto& call = loaded_.library_calls_[step.library_op]) {
          const Binding buffers[] = {bindings_[step.slots[0]], bindings_[step.slots[1]], bindings_[step.slots[2]]};
          encoder_->Call(*call, buffers);
        } else {
          RunSequence(step.bodies[0]);
        }
        break;
      case StepKind::kHostCall:
        if (contents_) contents_->BeforeHostCall(step);
        CallHost(step);
        if (contents_) contents_->AfterHostCall(step);
        break;
    }
  }

  void CallHost(const Step& step) {
    const HostCall& call = *loaded_.host_calls_[step.host_call];
    std::vector<std::byte*> addresses;
    addresses.reserve(step.slots.size());
    for (const uint32_t slot : step.slots)
      addresses.push_back(bindings_[slot].allocation->data() + bindings_[slot].offset);
    if (!call.runs_programs()) {
      encoder_->Host([&call, addresses = std::move(addresses), data = user_data] { call.Run(addresses, data.get()); });
      return;
    }
    // Nothing after it may be committed yet: the programs that it runs would wait for that.
    encoder_->Sync();
    const Queue::Nested nested(loaded_.device_->queue());
    call.Run(addresses, user_data.get());
  }

  std::vector<EventRef> in_order_;  // inputs' that are not waited for; they come before `done`
  Encoder* encoder_ = nullptr;
  std::vector<Binding> bindings_;  // one a slot
  std::optional<SlotContents> contents_;
};

LoadedProgram::LoadedProgram(LogicalDevice* device, std::shared_ptr<const Program> program)
    : device_(device), program_(std::move(program)) {
  RefuseIfForked();
  Device& hardware = *device_->device();
  if (program_->target != hardware.info().target) {
    throw InvalidArgument("program " + program_->name + " was compiled for \"" + program_->target +
                          "\"; this device is \"" + hardware.info().target + "\": compile it for this device");
  }
  LoadHostCalls(program_->body);
  const auto start = std::chrono::steady_clock::now();
  if (!program_->kernels.empty()) pipelines_ = hardware.Compile(program_->preamble, program_->kernels);
  if (LogEnabled()) {
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    LogPhase("compile: kernels", elapsed.count(), std::to_string(program_->kernels.size()) + " of " + program_->name);
  }
  size_t total = 0;
  for (const auto& constant : program_->constants) {
    constant_offsets_.push_back(total);
    total += (constant.size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (!program_->constants.empty()) {  // even if all are empty: no address is null
    constants_ = device_->Allocate(total, "constants of " + program_->name);
    for (size_t i = 0; i < program_->constants.size(); ++i) {
      const auto& constant = program_->constants[i];
      if (!constant.empty()) std::memcpy(constants_->data() + constant_offsets_[i], constant.data(), constant.size());
    }
  }
  library_calls_ = ChooseLibraryCalls(*program_, hardware, device_->allocator(), pipelines_, constant_offsets_);
  for (const TensorInfo& output : program_->outputs) output_memories_.push_back(MemoryFor(output));
  for (const TensorInfo& parameter : program_->parameters) {
    donates_any_ |= parameter.donated || parameter.alias >= 0;
  }
  // Even if only for arrays without elements: a kernel's argument is never null.
  uses_arena_ = std::ranges::any_of(program_->slots, [](const Slot& slot) { return slot.kind == SlotKind::kArena; });
  is_ordered_ = HasTokens(program_->body);
  waits_on_host_ = WaitsOnHost(program_->body);
  small_ = IsSmall(*program_, hardware.runs_on_caller());
}

void LoadedProgram::LoadHostCalls(const Sequence& sequence) {
  for (const Step& step : sequence) {
    // In the order in which they were numbered.
    if (step.kind == StepKind::kHostCall) host_calls_.push_back(NewHostCall(step, device_->id()));
    for (const Sequence& body : step.bodies) LoadHostCalls(body);
  }
}

MemorySpace* LoadedProgram::MemoryFor(const TensorInfo& tensor) const {
  for (const auto& memory : device_->memories()) {
    if (tensor.memory_kind == memory->kind_name()) return memory.get();
  }
  throw InvalidArgument("program " + program_->name + " wants memory kind \"" + tensor.memory_kind +
                        "\", which this device does not have");
}

bool LoadedProgram::Donates(size_t parameter, std::span<const int64_t> non_donatable) const {
  const TensorInfo& tensor = program_->parameters[parameter];
  if (!tensor.donated && tensor.alias < 0) return false;
  return std::find(non_donatable.begin(), non_donatable.end(), static_cast<int64_t>(parameter)) == non_donatable.end();
}

void LoadedProgram::CheckArguments(std::span<Buffer* const> arguments) const {
  const auto fail = [this](size_t i, const std::string& what) {
    throw InvalidArgument(program_->name + ": argument " + std::to_string(i) + " " + what);
  };
  if (arguments.size() != program_->parameters.size()) {
    throw InvalidArgument(program_->name + " takes " + std::to_string(program_->parameters.size()) +
                          " arguments and was given " + std::to_string(arguments.size()));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Buffer* argument = arguments[i];
    if (argument == nullptr) fail(i, "is null");
    const TensorInfo& wanted = program_->parameters[i];
    if (argument->dtype() != wanted.dtype || !std::ranges::equal(argument->dims(), wanted.dims)) {
      fail(i, "should be " + Describe(wanted.dtype, wanted.dims) + " and is " +
                  Describe(argument->dtype(), argument->dims()));
    }
    if (argument->memory()->device() != device_) fail(i, "is on another device");
  }
}

LoadedProgram::Result LoadedProgram::Execute(std::span<Buffer* const> arguments, std::span<const int64_t> non_donatable,
                                             std::shared_ptr<const FfiUserData> user_data) {
  RefuseIfForked();
  CheckArguments(arguments);
  device_->in_flight().AwaitRoom();
  auto execution = std::make_shared<Execution>(*this, program_);
  execution->user_data = std::move(user_data);
  const size_t count = arguments.size();

  std::vector<StorageRef> storages(count);
  for (size_t i = 0; i < count; ++i) {
    if (arguments[i]->is_deleted()) {
      throw InvalidArgument(program_->name + ": argument " + std::to_string(i) + " was deleted or donated before");
    }
    storages[i] = arguments[i]->storage();
  }

  // Memory for what no argument can give it first: running out leaves the arguments as they were.
  std::vector<AllocationRef> copies(count);
  for (size_t i = 0; i < count; ++i) {
    if (std::ranges::equal(arguments[i]->minor_to_major(), program_->parameters[i].minor_to_major)) continue;
    copies[i] = device_->Allocate(arguments[i]->bytes(), "argument in another layout");
  }
  std::vector<bool> may_take(program_->outputs.size());
  for (size_t i = 0; donates_any_ && i < count; ++i) {
    const int32_t alias = program_->parameters[i].alias;
    if (alias >= 0 && Donates(i, non_donatable)) may_take[static_cast<size_t>(alias)] = true;
  }
  std::vector<AllocationRef> taken(program_->outputs.size());
  for (size_t i = 0; i < taken.size(); ++i) {
    if (!may_take[i]) taken[i] = device_->Allocate(program_->outputs[i].bytes(), "outputs of " + program_->name);
  }

  if (donates_any_) {
    std::unordered_map<const Buffer*, size_t> uses;
    for (const Buffer* argument : arguments) ++uses[argument];
    for (size_t i = 0; i < count; ++i) {
      if (!Donates(i, non_donatable)) continue;
      if (uses[arguments[i]] > 1) {
        throw InvalidArgument(program_->name + ": argument " + std::to_string(i) +
                              " is donated and given as another argument too");
      }
    }
    for (size_t i = 0; i < count; ++i) {
      if (!Donates(i, non_donatable)) continue;
      const int32_t alias = program_->parameters[i].alias;
      storages[i].reset();
      StorageRef donated = arguments[i]->Donate();
      if (donated == nullptr) {  // external references keep it
        donated = arguments[i]->storage();
        arguments[i]->Delete();
      }
      // Only memory that nobody else looks at may be overwritten; a host array's never.
      if (alias >= 0 && donated.use_count() == 1 && !donated->on_release) {
        taken[static_cast<size_t>(alias)] = donated->allocation;
      }
      storages[i] = std::move(donated);
    }
  }

  execution->parameters.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    StorageRef& storage = storages[i];
    if (storage->defined != Event::Ready()) execution->waits.push_back(storage->defined);
    const TensorInfo& wanted = program_->parameters[i];
    const auto layout = arguments[i]->minor_to_major();
    if (copies[i] != nullptr) {
      execution->relayouts.push_back({wanted.dtype,
                                      wanted.dims,
                                      {layout.begin(), layout.end()},
                                      wanted.minor_to_major,
                                      storage->allocation,
                                      copies[i]});
      execution->parameters.push_back(std::move(copies[i]));
    } else {
      execution->parameters.push_back(storage->allocation);
    }
    if (storage->on_release) execution->kept.push_back(std::move(storage));
  }

  Result result;
  result.done = execution->done;
  result.outputs.reserve(taken.size());
  execution->outputs.reserve(taken.size());
  for (size_t i = 0; i < taken.size(); ++i) {
    const TensorInfo& output = program_->outputs[i];
    if (taken[i] == nullptr) {  // the donated memory could not be taken
      taken[i] = device_->Allocate(output.bytes(), "outputs of " + program_->name);
    }
    execution->outputs.push_back(taken[i]);
    auto storage = std::make_shared<Storage>();
    storage->allocation = std::move(taken[i]);
    storage->defined = execution->done;
    result.outputs.push_back(std::make_unique<Buffer>(output_memories_[i], output.dtype, output.dims,
                                                      output.minor_to_major, std::move(storage)));
  }

  Queue& queue = device_->queue();
  const bool ready = std::ranges::all_of(
      execution->waits, [&](const EventRef& event) { return event->IsReady() || !execution->MustAwait(*event); });
  execution->done->QueuedOn(&queue);
  // A device may still be working when an inline run returns.
  execution->keep_loaded = shared_from_this();
  if (!small_ || !ready || !queue.TryRunInline([&] { execution->Run(execution); })) {
    queue.Submit([execution] { execution->Run(execution); });
  }
  device_->in_flight().Add(execution->done);
  if (is_ordered_) {
    if (const auto error = execution->done->Await()) throw *error;
  }
  return result;
}

}  // namespace pjrt_metal
