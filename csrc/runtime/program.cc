#include "csrc/runtime/program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "csrc/runtime/reader.h"

namespace pjrt_metal {
namespace {

constexpr uint32_t kMagic = 0x504d4a50;  // "PJMP", little-endian
constexpr uint32_t kVersion = 4;
// Loops and branches inside one another: far more than any program has, far less than the stack holds.
constexpr int kMaxDepth = 64;
constexpr size_t kMaxBuffers = 31;  // of one kernel, argument bytes included: every Apple GPU's argument table

// zlib's CRC-32: reflected polynomial 0xEDB88320.
uint32_t Crc32(std::span<const std::byte> bytes) {
  static const std::array<std::array<uint32_t, 256>, 8> tables = [] {
    std::array<std::array<uint32_t, 256>, 8> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
      made[0][i] = crc;
    }
    for (size_t t = 1; t < 8; ++t) {
      for (size_t i = 0; i < 256; ++i) {
        made[t][i] = (made[t - 1][i] >> 8) ^ made[0][made[t - 1][i] & 255];
      }
    }
    return made;
  }();
  uint32_t crc = ~0u;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {  // eight bytes a step: constants run to megabytes
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    word ^= crc;
    crc = 0;
    for (size_t b = 0; b < 8; ++b) crc ^= tables[7 - b][(word >> (8 * b)) & 255];
  }
  for (; i < bytes.size(); ++i) {
    crc = (crc >> 8) ^ tables[0][(crc ^ static_cast<uint32_t>(bytes[i])) & 255];
  }
  return ~crc;
}

class Parser {
 public:
  explicit Parser(std::span<const std::byte> bytes) : in_(bytes) {}

  std::shared_ptr<const Program> Run() {
    Program& p = *program_;
    p.name = in_.String();
    p.target = in_.String();
    p.fingerprint = in_.String();
    p.num_replicas = in_.Number<uint32_t>();
    p.num_partitions = in_.Number<uint32_t>();
    if (p.num_replicas == 0 || p.num_partitions == 0) in_.Fail("it has no replicas or partitions");
    p.parameters = Tensors("parameter");
    p.outputs = Tensors("output");
    CheckAliases();
    p.preamble = in_.String();
    Kernels();
    p.labels.resize(in_.Count(32));
    for (Label& label : p.labels) {
      for (std::string* part : {&label.op, &label.location, &label.schedule, &label.detail}) *part = in_.String();
    }
    for (uint32_t left = in_.Count(8); left > 0; --left) {
      const auto blob = in_.Blob();
      p.constants.emplace_back(blob.begin(), blob.end());
    }
    std::vector<Slot> slots(in_.Count(21));
    for (Slot& slot : slots) slot = ReadSlot();
    p.arena_bytes = in_.Number<uint64_t>();
    p.slots = std::move(slots);
    for (size_t i = 0; i < p.slots.size(); ++i) CheckSlot(i);
    p.body = ReadSequence(0);
    p.cost.flops = in_.Number<double>();
    p.cost.transcendentals = in_.Number<double>();
    p.cost.bytes_accessed = in_.Number<double>();
    p.text = in_.String();
    if (!in_.done()) in_.Fail("bytes are left over");
    return program_;
  }

 private:
  std::vector<TensorInfo> Tensors(const char* what) {
    std::vector<TensorInfo> tensors(in_.Count(17));
    for (TensorInfo& tensor : tensors) {
      const auto dtype = in_.Number<uint8_t>();
      if (!IsKnown(dtype)) in_.Fail(std::string(what) + " has unknown element type " + std::to_string(dtype));
      tensor.dtype = static_cast<DType>(dtype);
      tensor.dims = in_.Numbers<int64_t>();
      tensor.minor_to_major = in_.Numbers<int64_t>();
      const std::set<int64_t> order(tensor.minor_to_major.begin(), tensor.minor_to_major.end());
      const auto rank = static_cast<int64_t>(tensor.dims.size());
      if (order.size() != tensor.dims.size() || tensor.minor_to_major.size() != tensor.dims.size() ||
          (rank > 0 && (*order.begin() != 0 || *order.rbegin() != rank - 1))) {
        in_.Fail(std::string(what) + "'s layout is no permutation of its dimensions");
      }
      tensor.memory_kind = in_.String();
      tensor.alias = in_.Number<int32_t>();
      tensor.donated = in_.Number<uint8_t>() != 0;
      DenseBytes(tensor.dtype, tensor.dims);  // throws on a negative or huge dimension
    }
    return tensors;
  }

  void CheckAliases() {
    std::set<int32_t> taken;
    for (const TensorInfo& parameter : program_->parameters) {
      if (parameter.alias < 0) continue;
      if (static_cast<size_t>(parameter.alias) >= program_->outputs.size()) in_.Fail("an alias names no output");
      if (!taken.insert(parameter.alias).second) in_.Fail("two parameters alias one output");
      const TensorInfo& output = program_->outputs[static_cast<size_t>(parameter.alias)];
      if (output.bytes() != parameter.bytes()) in_.Fail("an alias joins arrays of different sizes");
    }
  }

  void Kernels() {
    std::vector<KernelSource> kernels(in_.Count(21));
    for (KernelSource& kernel : kernels) {
      kernel.name = in_.String();
      kernel.source = in_.String();
      if (kernel.name.empty()) in_.Fail("a kernel has no name");
      for (const char c : kernel.name) {
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (!letter) in_.Fail("a kernel's name is not an identifier");
      }
      size_t buffers = 0;
      size_t args = 0;
      for (const uint8_t kind : in_.Numbers<uint8_t>()) {
        if (kind > static_cast<uint8_t>(ParamKind::kThreadgroupsPerGrid)) in_.Fail("unknown kernel parameter kind");
        kernel.params.push_back(static_cast<ParamKind>(kind));
        buffers += kernel.params.back() <= ParamKind::kOutput ? 1 : 0;
        args += kernel.params.back() == ParamKind::kArgs ? 1 : 0;
      }
      if (args > 1 || buffers + args > kMaxBuffers) {
        in_.Fail("kernel " + kernel.name + " binds " + std::to_string(buffers) + " buffers and " +
                 std::to_string(args) + " arguments; at most one argument, and " + std::to_string(kMaxBuffers) +
                 " in all, fit");
      }
      kernel.on_host = in_.Number<uint8_t>() != 0;
      buffers_.push_back(buffers);
      takes_args_.push_back(args == 1);
    }
    program_->kernels = std::move(kernels);
  }

  Slot ReadSlot() {
    const auto kind = in_.Number<uint8_t>();
    if (kind > static_cast<uint8_t>(SlotKind::kArena)) in_.Fail("unknown slot kind");
    Slot slot{static_cast<SlotKind>(kind), 0, 0, 0};
    slot.index = in_.Number<uint32_t>();
    slot.offset = in_.Number<uint64_t>();
    slot.bytes = in_.Number<uint64_t>();
    return slot;
  }

  void CheckSlot(size_t number) {
    const Program& p = *program_;
    const Slot& slot = p.slots[number];
    const std::string name = "slot " + std::to_string(number);
    uint64_t size = p.arena_bytes;
    const auto pick = [&](size_t count, auto bytes_of) {
      if (slot.index >= count) in_.Fail(name + " names something that is not there");
      size = bytes_of(slot.index);
    };
    switch (slot.kind) {
      case SlotKind::kParameter:
        pick(p.parameters.size(), [&](size_t i) { return p.parameters[i].bytes(); });
        break;
      case SlotKind::kOutput:
        pick(p.outputs.size(), [&](size_t i) { return p.outputs[i].bytes(); });
        break;
      case SlotKind::kConstant:
        pick(p.constants.size(), [&](size_t i) { return p.constants[i].size(); });
        break;
      case SlotKind::kArena:
        break;
    }
    if (slot.offset > size || slot.bytes > size - slot.offset) in_.Fail(name + " lies outside its memory");
  }

  uint32_t SlotNumber() {
    const auto slot = in_.Number<uint32_t>();
    if (slot >= program_->slots.size()) in_.Fail("a step names slot " + std::to_string(slot) + ", which is not there");
    return slot;
  }

  uint32_t WritableSlot() {
    const uint32_t slot = SlotNumber();
    CheckWritable(slot);
    return slot;
  }

  void CheckWritable(uint32_t slot) {
    const SlotKind kind = program_->slots[slot].kind;
    if (kind == SlotKind::kParameter || kind == SlotKind::kConstant) in_.Fail("a step writes a parameter or constant");
  }

  Sequence ReadSequence(int depth) {
    if (depth > kMaxDepth) in_.Fail("loops and branches are nested too deep");
    // Grown as steps are read: they are far larger than their bytes, and counts inside one another multiply.
    Sequence sequence;
    for (uint32_t left = in_.Count(9); left > 0; --left) sequence.push_back(ReadStep(depth));
    return sequence;
  }

  Step ReadStep(int depth) {
    Step step;
    const auto kind = in_.Number<uint8_t>();
    if (kind > static_cast<uint8_t>(StepKind::kLibrary)) in_.Fail("unknown step kind " + std::to_string(kind));
    step.kind = static_cast<StepKind>(kind);
    switch (step.kind) {
      case StepKind::kLaunch:
        ReadLaunch(step);
        break;
      case StepKind::kCopy:
        step.slots = {SlotNumber(), WritableSlot()};
        if (program_->slots[step.slots[0]].bytes != program_->slots[step.slots[1]].bytes) {
          in_.Fail("a copy's slots differ in size");
        }
        break;
      case StepKind::kWhile:
        step.slots = {SlotNumber()};
        if (program_->slots[step.slots[0]].bytes != 1) in_.Fail("a loop's predicate is not one byte");
        step.bodies.push_back(ReadSequence(depth + 1));
        step.bodies.push_back(ReadSequence(depth + 1));
        step.trip_count = in_.Number<int64_t>();
        break;
      case StepKind::kCase: {
        step.slots = {SlotNumber()};
        const uint64_t bytes = program_->slots[step.slots[0]].bytes;
        if (bytes != 1 && bytes != 4) in_.Fail("a branch's index is neither a predicate nor an i32");
        const uint32_t branches = in_.Count(4);
        if (branches == 0) in_.Fail("a branch has nowhere to go");
        for (uint32_t i = 0; i < branches; ++i) step.bodies.push_back(ReadSequence(depth + 1));
        break;
      }
      case StepKind::kHostCall: {
        step.target = in_.String();
        step.host_call = program_->host_calls++;
        ReadHostArrays(step);
        step.operands = static_cast<uint32_t>(step.slots.size());
        ReadHostArrays(step);
        for (size_t i = step.operands; i < step.slots.size(); ++i) CheckWritable(step.slots[i]);
        step.attributes = std::make_shared<const FfiAttributes>(in_);
        break;
      }
      case StepKind::kLibrary:
        ReadLibraryCall(step, depth);
        break;
    }
    return step;
  }

  void ReadHostArrays(Step& step) {
    for (uint32_t left = in_.Count(9); left > 0; --left) {
      const uint32_t slot = SlotNumber();
      const auto dtype = in_.Number<uint8_t>();
      if (!IsKnown(dtype)) in_.Fail("a host call's array has unknown element type " + std::to_string(dtype));
      HostArray array{static_cast<DType>(dtype), in_.Numbers<int64_t>()};
      const size_t bytes = array.dtype == DType::kToken ? 0 : DenseBytes(array.dtype, array.dims);
      if (bytes != program_->slots[slot].bytes) in_.Fail("a host call's array does not fit its slot");
      step.slots.push_back(slot);
      step.arrays.push_back(std::move(array));
    }
  }

  LibraryView ReadView() {
    LibraryView view;
    view.dims = in_.Numbers<int64_t>();
    view.permutation = in_.Numbers<uint32_t>();
    view.shape = in_.Numbers<int64_t>();
    return view;
  }

  void ReadLibraryCall(Step& step, int depth) {
    const auto choice = [this](auto last) {
      const auto value = in_.Number<uint8_t>();
      if (value > static_cast<uint8_t>(last)) in_.Fail("a library call has an unknown kind or layout");
      return static_cast<decltype(last)>(value);
    };
    LibraryOp op{};
    op.kind = choice(LibraryKind::kWeightsGradient);
    op.dtype = static_cast<DType>(in_.Number<uint8_t>());
    for (LibraryView* view : {&op.lhs, &op.rhs, &op.result}) *view = ReadView();
    for (uint32_t& n : op.stride) n = in_.Number<uint32_t>();
    for (uint32_t& n : op.dilation) n = in_.Number<uint32_t>();
    for (uint32_t& n : op.padding) n = in_.Number<uint32_t>();
    op.groups = in_.Number<uint32_t>();
    op.data_layout = choice(DataLayout::kNhwc);
    op.weights_layout = choice(WeightsLayout::kHwio);
    if (const std::string problem = Problem(op); !problem.empty()) in_.Fail(problem);
    step.slots = {SlotNumber(), SlotNumber(), WritableSlot()};
    const auto views = op.views();
    for (size_t i = 0; i < views.size(); ++i) {
      if (program_->slots[step.slots[i]].bytes != Bytes(op, *views[i])) {
        in_.Fail("a library call's slot has another size than its array");
      }
    }
    step.bodies.push_back(ReadSequence(depth + 1));
    const Sequence& kernels = step.bodies[0];
    const bool launches =
        std::ranges::all_of(kernels, [](const Step& kernel) { return kernel.kind == StepKind::kLaunch; });
    if (kernels.empty() || !launches) in_.Fail("a library call's alternative is not made of launches");
    step.library_op = static_cast<uint32_t>(program_->library_ops.size());
    program_->library_ops.push_back(std::move(op));
  }

  void ReadLaunch(Step& step) {
    step.kernel = in_.Number<uint32_t>();
    if (step.kernel >= program_->kernels.size()) in_.Fail("a launch names a kernel that is not there");
    KernelSource& kernel = program_->kernels[step.kernel];
    const auto label = in_.Number<uint32_t>();
    if (label >= program_->labels.size()) in_.Fail("a launch names a label that is not there");
    if (!program_->labels[label].op.empty()) step.grid.label = &program_->labels[label];
    step.slots = in_.Numbers<uint32_t>();
    if (step.slots.size() != buffers_[step.kernel]) {
      in_.Fail("a launch of " + kernel.name + " binds " + std::to_string(step.slots.size()) + " buffers, not " +
               std::to_string(buffers_[step.kernel]));
    }
    size_t next = 0;
    for (const ParamKind param : kernel.params) {
      if (param > ParamKind::kOutput) continue;
      const uint32_t slot = step.slots[next++];
      if (slot >= program_->slots.size()) in_.Fail("a launch names a slot that is not there");
      if (param == ParamKind::kOutput) CheckWritable(slot);
    }
    const auto blob = in_.Blob();
    if (blob.empty() == takes_args_[step.kernel]) in_.Fail("a launch's arguments do not fit " + kernel.name);
    // Metal gives kernels less than 4 KiB beside their buffers.
    if (blob.size() >= 4096) in_.Fail("a launch's arguments exceed 4095 bytes");
    step.args.assign(blob.begin(), blob.end());
    uint64_t threads = 1;
    for (uint32_t& n : step.grid.threads) {
      n = in_.Number<uint32_t>();
      if (n == 0 || __builtin_mul_overflow(threads, uint64_t{n}, &threads))
        in_.Fail("a launch's grid is empty or too large");
    }
    uint32_t zeros = 0;
    uint64_t group = 1;
    for (uint32_t& n : step.grid.per_threadgroup) {
      n = in_.Number<uint32_t>();
      zeros += n == 0 ? 1 : 0;
      if (__builtin_mul_overflow(group, uint64_t{n}, &group)) in_.Fail("a threadgroup is too large");
    }
    if ((zeros != 0 && zeros != 3) || group > 1024) in_.Fail("a threadgroup's size is not between 1 and 1024");
    step.grid.work = in_.Number<uint64_t>();
    if (step.grid.work < threads) in_.Fail("a launch's work is less than an iteration a thread");
    kernel.threadgroup_threads = std::max(kernel.threadgroup_threads, static_cast<uint32_t>(group));
  }

  Reader in_;
  std::shared_ptr<Program> program_ = std::make_shared<Program>();
  std::vector<size_t> buffers_;   // of each kernel
  std::vector<bool> takes_args_;  // of each kernel
};

}  // namespace

size_t TensorInfo::bytes() const { return DenseBytes(dtype, dims); }

std::shared_ptr<const Program> ParseProgram(std::span<const std::byte> bytes) {
  constexpr size_t kHeader = 24;
  Reader header(bytes.first(std::min(bytes.size(), kHeader)));
  if (bytes.size() < kHeader || header.Number<uint32_t>() != kMagic) header.Fail("it does not start like one");
  const auto version = header.Number<uint32_t>();
  if (version != kVersion) {
    header.Fail("it has format version " + std::to_string(version) + " and this plugin reads version " +
                std::to_string(kVersion) + "; compile it again");
  }
  const auto size = header.Number<uint64_t>();
  const auto crc = header.Number<uint64_t>();
  const auto payload = bytes.subspan(kHeader);
  if (size != payload.size()) header.Fail("it should have " + std::to_string(size) + " bytes after its header");
  if (crc != Crc32(payload)) header.Fail("its checksum does not match its contents");
  return Parser(payload).Run();
}

}  // namespace pjrt_metal
