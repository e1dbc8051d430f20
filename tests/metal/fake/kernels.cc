#include "tests/metal/fake/kernels.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "csrc/runtime/environment.h"
#include "csrc/software/host_cpu.h"
#include "csrc/software/kernel_cache.h"
#include "csrc/software/strict_run.h"
#include "tests/metal/fake/overlaps.h"
#include "tests/metal/fake/signature.h"

using namespace pjrt_metal;
using pjrt_metal::fake::Parameter;
using pjrt_metal::fake::Signature;

namespace strict = pjrt_metal::software;

struct FakeKernel {
  Signature signature;
  strict::StrictKernel code;
  const FakeKernel* next = nullptr;  // of the same text
};

namespace {

// Of a buffer's offset in the constant address space. Apple's documentation has said 256 for macOS, and now names
// the feature set tables, which say 32 (Mac 2) and 4 (Apple GPUs): the safest of them.
constexpr size_t kConstantAlignment = 256;

char* Text(const std::string& text) { return strdup(text.c_str()); }

bool IsBuffer(const Parameter& parameter) { return parameter.kind <= ParamKind::kArgs; }

FakeKernel* Compile(const std::string& source, Signature signature) {
  // As csrc/metal put them together, so that the strict device's cache on disk serves the fake too: a kernel begins
  // with a comment, and may carry functions.
  size_t begin = source.find("\n\n// ");
  begin = begin < signature.begin ? begin + 2 : signature.begin;
  std::string preamble = source.substr(0, begin);
  if (preamble.ends_with('\n')) preamble.pop_back();
  KernelSource kernel = {signature.name, source.substr(begin), {}};
  for (const Parameter& parameter : signature.parameters) kernel.params.push_back(parameter.kind);
  static const strict::HostCpu host = strict::DescribeHost();
  // A cache of its own for each compilation: one cache compiles one thing at a time.
  strict::KernelCache cache(host.features, 1, strict::StrictDialect());
  const strict::StrictKernel code = strict::MakeStrictKernel(kernel, cache.Get(preamble, {&kernel, 1})[0]);
  return new FakeKernel{std::move(signature), code};
}

const FakeKernel* Compile(const std::string& source, bool has_bfloat) {
  if (!has_bfloat && fake::WithoutComments(source).find("bfloat") != std::string::npos) {
    throw InvalidArgument("program_source: error: unknown type name 'bfloat' (it came with Metal 3.1)");
  }
  const FakeKernel* first = nullptr;
  std::vector<Signature> signatures = fake::ReadSignatures(source);
  for (auto signature = signatures.rbegin(); signature != signatures.rend(); ++signature) {
    FakeKernel* const kernel = Compile(source, std::move(*signature));
    kernel->next = first;
    first = kernel;
  }
  if (first == nullptr) throw InvalidArgument("program_source: error: no kernel in this text");
  return first;
}

}  // namespace

const FakeKernel* FakeCompile(const char* source, int has_bfloat, char** error) {
  static std::mutex mutex;
  static auto* compiled = new std::map<std::string, const FakeKernel*>;
  const std::string key = std::string(has_bfloat ? "1" : "0") + source;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = compiled->find(key); found != compiled->end()) return found->second;
  }
  try {
    const FakeKernel* kernel = Compile(source, has_bfloat != 0);
    const std::lock_guard lock(mutex);
    return compiled->emplace(key, kernel).first->second;
  } catch (const std::exception& exception) {
    *error = Text(exception.what());
    return nullptr;
  }
}

const FakeKernel* FakeNextKernel(const FakeKernel* kernel) { return kernel->next; }

const char* FakeKernelName(const FakeKernel* kernel) { return kernel->signature.name.c_str(); }

char* FakeCheckBuffer(const FakeKernel* kernel, uint32_t index, const FakeSpan* span, size_t offset) {
  for (const Parameter& parameter : kernel->signature.parameters) {
    if (!IsBuffer(parameter) || parameter.index != index) continue;
    const std::string what = kernel->signature.name + ": buffer " + std::to_string(index) + " (" + parameter.name + ")";
    if (span->bytes == nullptr) return Text(what + " is not bound");
    const size_t alignment = parameter.kind == ParamKind::kArgs ? kConstantAlignment : parameter.alignment;
    if (offset % alignment == 0) return nullptr;
    return Text(what + " is bound at offset " + std::to_string(offset) + ", not a multiple of " +
                std::to_string(alignment));
  }
  return nullptr;
}

char* FakeRunKernel(const FakeKernel* kernel, const FakeSpan* buffers, const uint32_t* threads,
                    const uint32_t* per_threadgroup) {
  // Only the GPU's thread comes here, so whatever PJRT_METAL_STRICT_ORDERS says is read once.
  try {
    static strict::StrictRunner runner(environment::StrictOrders().value_or(strict::kOrders));
    const strict::Geometry geometry(
        kernel->signature.name,
        {{threads[0], threads[1], threads[2]}, {per_threadgroup[0], per_threadgroup[1], per_threadgroup[2]}});
    std::vector<strict::Piece> pieces, arguments;
    for (const Parameter& parameter : kernel->signature.parameters) {
      if (!IsBuffer(parameter)) continue;
      const FakeSpan& span = buffers[parameter.index];
      std::vector<strict::Piece>& list = parameter.kind == ParamKind::kArgs ? arguments : pieces;
      list.push_back({"buffer " + parameter.name, reinterpret_cast<std::byte*>(span.bytes), span.length,
                      parameter.kind == ParamKind::kOutput});
    }
    pieces.insert(pieces.end(), arguments.begin(), arguments.end());
    std::vector<strict::Touched> touched;
    runner.Run(kernel->code, geometry, pieces, !arguments.empty(), &touched);
    const std::string overlap = fake::AddToPhase(kernel->signature.name, std::move(touched));
    return overlap.empty() ? nullptr : Text(overlap);
  } catch (const std::exception& exception) {
    return Text(exception.what());
  }
}

void FakeBarrier(void) { fake::NewPhase(); }
