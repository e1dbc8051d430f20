#include "csrc/metal/pipelines.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>

#include "csrc/runtime/log.h"

namespace pjrt_metal::metal {
namespace {

// Kernels are compiled on this many threads; Metal's compiler runs in processes of its own.
constexpr size_t kCompileThreads = 8;

// macOS 26, which calls itself 16 to processes that were built with an older SDK; there was no other 16.
constexpr int64_t kMacosOfMetal4 = 16;
// The newest first. MSL 3.1 brought bfloat.
constexpr Language kLanguages[] = {{kMacosOfMetal4, kLanguageVersion4_0, 40, "metal4.0"},
                                   {15, kLanguageVersion3_2, 32, "metal3.2"},
                                   {14, kLanguageVersion3_1, 31, "metal3.1"},
                                   {kMinimumMacos, kLanguageVersion3_0, 30, "metal3.0"}};

// The source in a file of its own, so that the error can name it; the source itself if there is no
// room.
std::string SaveSource(const std::string& source) {
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/pjrt_metal_XXXXXX.metal";
  const int file = mkstemps(path.data(), 6);
  if (file < 0) return "<no file: " + path + ">\n" + source;
  const bool written = write(file, source.data(), source.size()) == static_cast<ssize_t>(source.size());
  close(file);
  return written ? path : "<not written: " + path + ">\n" + source;
}

}  // namespace

const Language* LanguageOf(const OsVersion& macos) {
  for (const Language& language : kLanguages) {
    if (macos.major >= language.macos) return &language;
  }
  return nullptr;
}

Pipelines::Pipelines(Id device, const Language& language, std::string system, std::string archives)
    : device_(Ref::Retain(device)),
      language_(language),
      system_(std::move(system)),
      archives_(device, std::move(archives)) {}

Ref Pipelines::Function(const std::string& source, const std::string& name) const {
  const Ref options = New(Class::kMTLCompileOptions);
  // IEEE-safe arithmetic: a NaN is a NaN, and no reassociation.
  if (SendIfAvailable<Message::kSetMathMode>(options.get(), kMathModeSafe)) {
    SendIfAvailable<Message::kSetMathFloatingPointFunctions>(options.get(), kMathFunctionsPrecise);
  } else {
    Send<Message::kSetFastMathEnabled>(options.get(), false);
  }
  Send<Message::kSetLanguageVersion>(options.get(), language_.value);
  Id error = nullptr;
  const Ref text = String(source);
  const Ref library =
      Ref::Adopt(Send<Message::kNewLibraryWithSource>(device_.get(), text.get(), options.get(), &error));
  // A library may come with an error that holds only warnings.
  if (!library) {
    const std::string path = SaveSource(source);
    throw Internal(name + ": Metal could not compile it: " + ErrorText(error) +
                   "\nrepeat with: xcrun -sdk macosx metal -std=" + language_.option +
                   " -fno-fast-math -c -o /dev/null " + path);
  }
  Ref function = Ref::Adopt(Send<Message::kNewFunctionWithName>(library.get(), String(name).get()));
  if (!function) throw Internal(name + ": its source does not define a kernel of that name");
  return function;
}

Ref Pipelines::State(const std::string& source, const KernelSource& kernel, const std::string& key) {
  const auto start = std::chrono::steady_clock::now();
  const Ref descriptor = New(Class::kMTLComputePipelineDescriptor);
  Send<Message::kSetComputeFunction>(descriptor.get(), Function(source, kernel.name).get());
  Send<Message::kSetPipelineLabel>(descriptor.get(), String(kernel.name).get());
  // Metal gives no thread so many registers that such a threadgroup does not fit.
  if (kernel.threadgroup_threads > 0) {
    Send<Message::kSetMaxTotalThreads>(descriptor.get(), uint64_t{kernel.threadgroup_threads});
  }
  const auto make = [&](uint64_t options, Id* error) {
    return Ref::Adopt(
        Send<Message::kNewComputePipelineState>(device_.get(), descriptor.get(), options, nullptr, error));
  };
  const auto log = [&](const char* how) {
    if (!LogEnabled()) return;
    const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    LogPhase("metal: pipeline", elapsed.count(), kernel.name + how);
  };
  const Digest digest = Hasher().AddField(key).AddField(system_).AddField(language_.option).Finish();
  Id error = nullptr;
  if (const Ref archive = archives_.Find(digest)) {
    Send<Message::kSetBinaryArchives>(descriptor.get(),
                                      Send<Message::kArrayWithObject>(Of(Class::kNSArray), archive.get()));
    if (Ref state = make(kFailOnBinaryArchiveMiss, &error)) {
      log(" from its archive");
      return state;
    }
    LogPhase("metal: foreign archive", 0, kernel.name + ": " + ErrorText(error));
    Send<Message::kSetBinaryArchives>(descriptor.get(), nullptr);
  }
  // Before the pipeline, which then need not be compiled again.
  const Ref archive = archives_.Make(descriptor.get());
  if (archive) {
    Send<Message::kSetBinaryArchives>(descriptor.get(),
                                      Send<Message::kArrayWithObject>(Of(Class::kNSArray), archive.get()));
  }
  Ref state = make(kPipelineOptionNone, &error);
  if (!state) {
    throw Internal(kernel.name + ": Metal could not make its pipeline: " + ErrorText(error) +
                   "\nsource: " + SaveSource(source));
  }
  log(" compiled");
  if (archive) archives_.Add(digest, archive.get());
  return state;
}

std::shared_ptr<const MetalPipeline> Pipelines::Build(const std::string& source, const KernelSource& kernel,
                                                      const std::string& key) {
  auto pipeline = std::make_shared<MetalPipeline>();
  pipeline->name = kernel.name;
  uint32_t buffers = 0;
  for (const ParamKind kind : kernel.params) {
    if (kind == ParamKind::kInput || kind == ParamKind::kOutput) {
      pipeline->buffers.push_back({buffers++, kind == ParamKind::kOutput});
    } else if (kind == ParamKind::kArgs) {
      pipeline->args_index = static_cast<int>(buffers++);
    }
  }
  const Pool pool;
  pipeline->state = State(source, kernel, key);
  const Id state = pipeline->state.get();
  const uint64_t width = Send<Message::kThreadExecutionWidth>(state);
  if (width != kSimdWidth) {
    throw Internal(kernel.name + ": runs with " + std::to_string(width) +
                   " threads in a SIMD group; kernels are written for " + std::to_string(kSimdWidth));
  }
  pipeline->max_threads = static_cast<uint32_t>(Send<Message::kMaxTotalThreadsPerThreadgroup>(state));
  return pipeline;
}

std::shared_ptr<const MetalPipeline> Pipelines::CompileOne(const std::string& preamble, const KernelSource& kernel) {
  const std::string source = preamble + "\n" + kernel.source;
  std::string key = kernel.name + '\0';
  for (const ParamKind kind : kernel.params) key += static_cast<char>(kind);
  key += std::to_string(kernel.threadgroup_threads);
  key += '\0' + source;
  {
    const std::lock_guard lock(mutex_);
    const auto found = cache_.find(key);
    if (found != cache_.end()) return found->second;
  }
  auto pipeline = Build(source, kernel, key);
  const std::lock_guard lock(mutex_);
  return cache_.emplace(std::move(key), std::move(pipeline)).first->second;
}

std::vector<PipelineRef> Pipelines::Compile(const std::string& preamble, std::span<const KernelSource> kernels) {
  std::vector<PipelineRef> pipelines(kernels.size());
  std::vector<std::exception_ptr> errors(kernels.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < kernels.size(); i = next++) {
      try {
        pipelines[i] = CompileOne(preamble, kernels[i]);
      } catch (...) {
        errors[i] = std::current_exception();
        // An Objective-C exception may not show as one.
        if (!errors[i]) errors[i] = std::make_exception_ptr(Internal(kernels[i].name + ": Metal raised an exception"));
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(kernels.size(), kCompileThreads); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return pipelines;
}

}  // namespace pjrt_metal::metal
