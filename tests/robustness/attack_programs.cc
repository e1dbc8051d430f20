// Loads and runs changed Programs: attack_programs CORPUS COUNT SEED [ONLY]
//
// The corpus has Programs and where their fields are (attack_corpus.py writes it). A change puts an odd number into a
// field, takes another's value, cuts, repeats or flips bytes; the checksum is then made to fit, so that the parser has
// to find what is wrong. What it accepts runs on the plain device, whose kernels touch all that they were bound to.
#include <array>
#include <memory>
#include <optional>

#include "csrc/runtime/client.h"
#include "csrc/runtime/ffi_registry.h"
#include "csrc/runtime/program.h"
#include "csrc/runtime/xla_ffi.h"
#include "tests/robustness/attack.h"

namespace pjrt_metal::attack {
namespace {

constexpr size_t kHeader = 24;
constexpr size_t kLargestArgument = 1 << 20;
constexpr double kMostSteps = 1e5;

struct Field {
  uint32_t offset;
  uint8_t width;
};
struct Subject {
  std::vector<uint8_t> bytes;
  std::vector<Field> fields;
};

template <class T>
T Number(const uint8_t*& at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

std::vector<Subject> ReadCorpus(const char* path) {
  const std::vector<uint8_t> file = ReadAll(path);
  const uint8_t* at = file.data();
  std::vector<Subject> subjects(Number<uint32_t>(at));
  for (Subject& subject : subjects) {
    const auto size = Number<uint64_t>(at);
    subject.bytes.assign(at, at + size);
    at += size;
    subject.fields.resize(Number<uint32_t>(at));
    for (Field& field : subject.fields) {
      field.offset = Number<uint32_t>(at);
      field.width = Number<uint8_t>(at);
    }
  }
  return subjects;
}

uint32_t Crc32(const uint8_t* data, size_t size) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
      made[i] = crc;
    }
    return made;
  }();
  uint32_t crc = ~0u;
  for (size_t i = 0; i < size; ++i) crc = (crc >> 8) ^ table[(crc ^ data[i]) & 255];
  return ~crc;
}

void FitHeader(std::vector<uint8_t>& bytes) {
  if (bytes.size() < kHeader) return;
  const uint64_t size = bytes.size() - kHeader, crc = Crc32(bytes.data() + kHeader, size);
  std::memcpy(bytes.data() + 8, &size, 8);
  std::memcpy(bytes.data() + 16, &crc, 8);
}

std::vector<uint8_t> Change(const Subject& subject, Random& random) {
  std::vector<uint8_t> bytes = subject.bytes;
  const size_t changes = 1 + random.Below(4);
  for (size_t i = 0; i < changes && bytes.size() > kHeader; ++i) {
    const size_t at = kHeader + random.Below(bytes.size() - kHeader);
    const size_t length = std::min<size_t>(1 + random.Below(16), bytes.size() - at);
    switch (random.Below(10)) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1 << random.Below(8));
        break;
      case 1:
        bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(at + length));
        break;
      case 2: {
        const std::vector<uint8_t> piece(bytes.begin() + static_cast<ptrdiff_t>(at),
                                         bytes.begin() + static_cast<ptrdiff_t>(at + length));
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), piece.begin(), piece.end());
        break;
      }
      default: {
        const Field& field = subject.fields[random.Below(subject.fields.size())];
        if (field.offset + field.width > bytes.size()) break;
        uint64_t value = 0;
        std::memcpy(&value, bytes.data() + field.offset, field.width);
        const uint64_t choices[] = {random.Odd(), random.Odd(field.width * 8), value + 1, value - 1, value * 2, 0};
        value = choices[random.Below(std::size(choices))];
        if (random.OneIn(4)) {
          const Field& other = subject.fields[random.Below(subject.fields.size())];
          value = 0;
          if (other.offset + other.width <= bytes.size()) std::memcpy(&value, bytes.data() + other.offset, other.width);
        }
        std::memcpy(bytes.data() + field.offset, &value, field.width);
      }
    }
  }
  if (!random.OneIn(20)) FitHeader(bytes);
  return bytes;
}

// A handler that reads its operands and writes its results to the last byte.
xla_ffi::Error* Touch(xla_ffi::CallFrame* frame) {
  if (frame->extension != nullptr && frame->extension->type == xla_ffi::kMetadataExtension) {
    auto* metadata = reinterpret_cast<xla_ffi::MetadataExtension*>(frame->extension)->metadata;
    metadata->version.major = xla_ffi::kMajor;
    metadata->version.minor = xla_ffi::kMinor;
    return nullptr;
  }
  unsigned char sum = 0;
  const auto read = [&](const void* data, size_t size) {
    for (size_t i = 0; i < size; ++i) sum ^= static_cast<const unsigned char*>(data)[i];
  };
  for (int64_t i = 0; i < frame->attributes.count; ++i) {
    read(frame->attributes.names[i]->data, frame->attributes.names[i]->size);
    if (frame->attributes.kinds[i] == xla_ffi::kString) {
      const auto* text = static_cast<const xla_ffi::Text*>(frame->attributes.values[i]);
      read(text->data, text->size);
    }
  }
  const auto each = [](const xla_ffi::Arguments& arguments, auto&& use) {
    for (int64_t i = 0; i < arguments.count; ++i) {
      const auto& buffer = *static_cast<const xla_ffi::Buffer*>(arguments.values[i]);
      size_t count = 1;
      for (int64_t d = 0; d < buffer.rank; ++d) count *= static_cast<size_t>(buffer.dims[d]);
      use(static_cast<unsigned char*>(buffer.data), buffer.dtype == 17 ? 0 : count);  // 17: a token
    }
  };
  each(frame->operands, [&](unsigned char* data, size_t size) { read(data, size); });
  each(frame->results, [&](unsigned char* data, size_t size) { std::memset(data, sum, size); });
  return nullptr;
}

// Steps that an execution takes if every loop of unknown length ends after one round.
double Steps(const Sequence& sequence) {
  double steps = 0;
  for (const Step& step : sequence) {
    double inside = 1;
    for (const Sequence& body : step.bodies) inside += Steps(body);
    steps += step.kind == StepKind::kWhile && step.trip_count >= 0 ? 1 + inside * static_cast<double>(step.trip_count)
                                                                   : inside;
  }
  return steps;
}

struct Counts {
  uint64_t refused = 0, loaded = 0, executed = 0, failed = 0;
};

class Attack {
 public:
  Attack() : api_(*GetPjrtApi()) {
    FfiHandlers handlers{};
    handlers[xla_ffi::kExecute] = Touch;
    RegisterFfiHandlers("touch", "metal", handlers);
    auto create = New<PJRT_Client_Create_Args>();
    if (Take(api_, api_.PJRT_Client_Create(&create)) != 0) std::abort();
    client_ = create.client;
  }

  ~Attack() {
    auto destroy = New<PJRT_Client_Destroy_Args>();
    destroy.client = client_;
    Take(api_, api_.PJRT_Client_Destroy(&destroy));
  }

  // Compile options of every kind of wrong, for a sound Program.
  bool Load(const Subject& subject, const std::string& options) {
    auto load = New<PJRT_Executable_DeserializeAndLoad_Args>();
    load.client = client_;
    load.serialized_executable = reinterpret_cast<const char*>(subject.bytes.data());
    load.serialized_executable_size = subject.bytes.size();
    const std::unique_ptr<char[]> exact(new char[options.size() + (options.empty() ? 1 : 0)]);
    std::memcpy(exact.get(), options.data(), options.size());
    load.overridden_serialized_compile_options = exact.get();
    load.overridden_serialized_compile_options_size = options.size();
    if (Take(api_, api_.PJRT_Executable_DeserializeAndLoad(&load)) != 0) return false;
    auto assignment = New<PJRT_LoadedExecutable_GetDeviceAssignment_Args>();
    assignment.executable = load.loaded_executable;
    if (Take(api_, api_.PJRT_LoadedExecutable_GetDeviceAssignment(&assignment)) != 0) std::abort();
    assignment.serialized_device_assignment_deleter(assignment.serialized_device_assignment);
    auto destroy = New<PJRT_LoadedExecutable_Destroy_Args>();
    destroy.executable = load.loaded_executable;
    if (Take(api_, api_.PJRT_LoadedExecutable_Destroy(&destroy)) != 0) std::abort();
    return true;
  }

  void Try(const std::vector<uint8_t>& bytes, Counts& counts) {
    auto load = New<PJRT_Executable_DeserializeAndLoad_Args>();
    load.client = client_;
    // A copy of exactly this size: a read behind it is found.
    const std::unique_ptr<char[]> exact(new char[bytes.size() + (bytes.empty() ? 1 : 0)]);
    std::memcpy(exact.get(), bytes.data(), bytes.size());
    load.serialized_executable = exact.get();
    load.serialized_executable_size = bytes.size();
    if (const int code = Take(api_, api_.PJRT_Executable_DeserializeAndLoad(&load)); code != 0) {
      if (code != 3 && code != 5 && code != 8 && code != 12 && code != 14) std::abort();  // as absl's status codes
      ++counts.refused;
      return;
    }
    ++counts.loaded;
    Look(load.loaded_executable);
    const auto program = ParseProgram(std::as_bytes(std::span(bytes)));
    if (Steps(program->body) < kMostSteps) Execute(load.loaded_executable, *program, counts);
    auto destroy = New<PJRT_LoadedExecutable_Destroy_Args>();
    destroy.executable = load.loaded_executable;
    if (Take(api_, api_.PJRT_LoadedExecutable_Destroy(&destroy)) != 0) std::abort();
  }

 private:
  template <class Args, class Function>
  void Ask(Function function, PJRT_Executable* executable) {
    auto args = New<Args>();
    args.executable = executable;
    Take(api_, function(&args));
  }

  void Look(PJRT_LoadedExecutable* loaded) {
    auto get = New<PJRT_LoadedExecutable_GetExecutable_Args>();
    get.loaded_executable = loaded;
    if (Take(api_, api_.PJRT_LoadedExecutable_GetExecutable(&get)) != 0) std::abort();
    Ask<PJRT_Executable_Name_Args>(api_.PJRT_Executable_Name, get.executable);
    Ask<PJRT_Executable_NumOutputs_Args>(api_.PJRT_Executable_NumOutputs, get.executable);
    Ask<PJRT_Executable_GetCostAnalysis_Args>(api_.PJRT_Executable_GetCostAnalysis, get.executable);
    Ask<PJRT_Executable_GetCompiledMemoryStats_Args>(api_.PJRT_Executable_GetCompiledMemoryStats, get.executable);
    Ask<PJRT_Executable_OutputElementTypes_Args>(api_.PJRT_Executable_OutputElementTypes, get.executable);
    Ask<PJRT_Executable_OutputDimensions_Args>(api_.PJRT_Executable_OutputDimensions, get.executable);
    Ask<PJRT_Executable_OutputMemoryKinds_Args>(api_.PJRT_Executable_OutputMemoryKinds, get.executable);
    Ask<PJRT_Executable_ParameterMemoryKinds_Args>(api_.PJRT_Executable_ParameterMemoryKinds, get.executable);
    Ask<PJRT_Executable_Destroy_Args>(api_.PJRT_Executable_Destroy, get.executable);
  }

  PJRT_Buffer* Argument(const TensorInfo& tensor) {
    const size_t bytes = tensor.bytes();
    if (bytes > kLargestArgument) return nullptr;
    data_.assign(bytes + 1, 1);
    auto from = New<PJRT_Client_BufferFromHostBuffer_Args>();
    from.client = client_;
    from.data = data_.data();
    from.type = static_cast<PJRT_Buffer_Type>(tensor.dtype);
    from.dims = tensor.dims.data();
    from.num_dims = tensor.dims.size();
    from.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    if (Take(api_, api_.PJRT_Client_BufferFromHostBuffer(&from)) != 0) return nullptr;
    Await(from.done_with_host_buffer);
    return from.buffer;
  }

  bool Await(PJRT_Event* event) {
    auto await = New<PJRT_Event_Await_Args>();
    await.event = event;
    const bool failed = Take(api_, api_.PJRT_Event_Await(&await)) != 0;
    auto destroy = New<PJRT_Event_Destroy_Args>();
    destroy.event = event;
    if (Take(api_, api_.PJRT_Event_Destroy(&destroy)) != 0) std::abort();
    return !failed;
  }

  void DestroyBuffer(PJRT_Buffer* buffer) {
    if (buffer == nullptr) return;
    auto destroy = New<PJRT_Buffer_Destroy_Args>();
    destroy.buffer = buffer;
    if (Take(api_, api_.PJRT_Buffer_Destroy(&destroy)) != 0) std::abort();
  }

  void Execute(PJRT_LoadedExecutable* loaded, const Program& program, Counts& counts) {
    std::vector<PJRT_Buffer*> arguments;
    bool complete = true;
    for (const TensorInfo& tensor : program.parameters) {
      arguments.push_back(complete ? Argument(tensor) : nullptr);
      complete = arguments.back() != nullptr;
      if (!complete) break;
    }
    std::vector<PJRT_Buffer*> outputs(program.outputs.size() + 1);
    if (complete) {
      auto options = New<PJRT_ExecuteOptions>();
      auto execute = New<PJRT_LoadedExecutable_Execute_Args>();
      execute.executable = loaded;
      execute.options = &options;
      PJRT_Buffer* const* argument_list = arguments.data();
      execute.argument_lists = &argument_list;
      execute.num_devices = 1;
      execute.num_args = arguments.size();
      PJRT_Buffer** output_list = outputs.data();
      execute.output_lists = &output_list;
      PJRT_Event* done = nullptr;
      execute.device_complete_events = &done;
      if (Take(api_, api_.PJRT_LoadedExecutable_Execute(&execute)) == 0) {
        ++(Await(done) ? counts.executed : counts.failed);
      } else {
        ++counts.failed;
      }
    }
    for (PJRT_Buffer* output : outputs) {
      if (output != nullptr) Read(output);
      DestroyBuffer(output);
    }
    for (PJRT_Buffer* argument : arguments) DestroyBuffer(argument);
  }

  void Read(PJRT_Buffer* buffer) {
    auto to = New<PJRT_Buffer_ToHostBuffer_Args>();
    to.src = buffer;
    if (Take(api_, api_.PJRT_Buffer_ToHostBuffer(&to)) != 0) return;
    const std::unique_ptr<char[]> exact(new char[to.dst_size + (to.dst_size == 0 ? 1 : 0)]);
    to.dst = exact.get();
    if (Take(api_, api_.PJRT_Buffer_ToHostBuffer(&to)) == 0) Await(to.event);
  }

  const PJRT_Api& api_;
  PJRT_Client* client_ = nullptr;
  std::vector<char> data_;
};

}  // namespace
}  // namespace pjrt_metal::attack

int main(int argc, char** argv) {
  using namespace pjrt_metal::attack;
  if (argc < 4) return 2;
  Install();
  const std::vector<Subject> subjects = ReadCorpus(argv[1]);
  const uint64_t count = std::strtoull(argv[2], nullptr, 10), seed = std::strtoull(argv[3], nullptr, 10);
  Counts counts;
  uint64_t options_refused = 0;
  {
    Attack attack;
    for (const Subject& subject : subjects) {  // each is sound before it is changed
      Begin(~uint64_t{0});
      const uint64_t refused = counts.refused;
      attack.Try(subject.bytes, counts);
      if (counts.refused != refused) {
        std::fprintf(stderr, "a sound Program was refused\n");
        return 1;
      }
    }
    counts = {};
    const uint64_t first = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0;
    for (uint64_t i = first; i < (argc > 4 ? first + 1 : count); ++i) {
      Begin(i);
      Random random(seed, i);
      attack.Try(Change(subjects[i % subjects.size()], random), counts);
      options_refused += attack.Load(subjects[0], Options(random)) ? 0 : 1;
    }
  }
  alarm(0);
  std::printf(
      "programs: %llu changed, %llu refused, %llu loaded, %llu executed, %llu failed when executed; %llu compile "
      "options refused\n",
      static_cast<unsigned long long>(count), static_cast<unsigned long long>(counts.refused),
      static_cast<unsigned long long>(counts.loaded), static_cast<unsigned long long>(counts.executed),
      static_cast<unsigned long long>(counts.failed), static_cast<unsigned long long>(options_refused));
  return 0;
}
