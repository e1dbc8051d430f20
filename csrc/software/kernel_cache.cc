#include "csrc/software/kernel_cache.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <set>
#include <system_error>
#include <thread>

#include "csrc/runtime/cache_folder.h"
#include "csrc/runtime/environment.h"
#include "csrc/runtime/files.h"
#include "csrc/runtime/log.h"
#include "csrc/software/compiler.h"
#include "csrc/software/stand_in_headers.h"

namespace pjrt_metal::software {
namespace {

// Source text that keeps a compiler busy for about as long as it takes to start and read the
// headers.
constexpr size_t kUnitBytes = 6000;
// Units a thread gets, if there is enough text: text is a poor guide to a compiler's time, so the
// last ones should be short.
constexpr size_t kUnitsPerThread = 4;

class Stopwatch {
 public:
  double Milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A loaded library takes two or this many of the maps that the system lets a process have.
constexpr size_t kMapsOfLibrary = 3;
constexpr size_t kDefaultMaxMaps = 65530;  // Linux's
constexpr size_t kMapsOfOthers = 8192;     // left to memory and to everybody else's libraries

size_t MaxLibraries() {
  static const size_t count = [] {
    const std::string text = ReadFile("/proc/sys/vm/max_map_count").value_or("");
    const size_t maps = text.empty() ? kDefaultMaxMaps : std::strtoull(text.c_str(), nullptr, 10);
    return (std::max(maps, 2 * kMapsOfOthers) - kMapsOfOthers) / kMapsOfLibrary;
  }();
  return count;
}

std::string Plural(size_t count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

std::string Environment(const std::string& host, const std::string& cxx, const Dialect& dialect) {
  Hasher hasher;
  hasher.AddField(host).AddField(cxx).AddField(dialect.prologue);
  for (const char* flag : dialect.flags) hasher.AddField(flag);
  for (const char* flag : CompilerFlags()) hasher.AddField(flag);
  for (const Header& header : StandInHeaders()) hasher.AddField(header.name).AddField(header.text);
  return Hex(hasher.Finish());
}

// Which of the texts (by index) go into one unit: shares of about equal size.
std::vector<std::vector<size_t>> Batches(const std::vector<size_t>& sizes, uint32_t threads) {
  size_t total = 0;
  for (const size_t size : sizes) total += size;
  const size_t count = std::min(sizes.size(), std::clamp<size_t>(total / kUnitBytes, 1, threads * kUnitsPerThread));
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::vector<size_t>> batches(count);
  std::set<std::pair<size_t, size_t>> loads;  // bytes, batch
  for (size_t i = 0; i < count; ++i) loads.emplace(0, i);
  for (const size_t item : order) {
    auto lightest = loads.extract(loads.begin());
    lightest.value().first += sizes[item];
    batches[lightest.value().second].push_back(item);
    loads.insert(std::move(lightest));
  }
  return batches;
}

int WriteHeaders(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0) return errno;
  for (const Header& header : StandInHeaders()) {
    const int error = WriteFile(folder + "/" + std::string(header.name), header.text);
    if (error != 0) return error;
  }
  return 0;
}

// nullptr if the loader refuses; dlerror says why. Throws ResourceExhausted before so many libraries are loaded that
// the process has no maps left for memory.
std::shared_ptr<const void> OpenLibrary(const std::string& path) {
  static std::atomic<size_t> open = 0;
  if (open.fetch_add(1) >= MaxLibraries()) {
    --open;
    throw ResourceExhausted("software Metal: " + std::to_string(MaxLibraries()) +
                            " kernels are loaded, as many as the system lets one process map (vm.max_map_count): drop "
                            "programs that are not needed any more, with jax.clear_caches()");
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    --open;
    return nullptr;
  }
  return {handle, [](void* library) {
            dlclose(library);
            --open;
          }};
}

// Calls work(0), ..., work(count - 1) on up to `threads` threads. Throws what the first of them
// threw.
template <class Work>
void ParallelFor(size_t count, uint32_t threads, Work work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<size_t> next = 0;
  const auto loop = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> helpers;  // not std::jthread, which Apple's C++ library lacks
  for (size_t i = 1; i < std::min<size_t>(count, threads); ++i) {
    try {
      helpers.emplace_back(loop);
    } catch (const std::system_error&) {
      break;  // no more threads to be had: those there are do the work
    }
  }
  loop();
  for (std::thread& helper : helpers) helper.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

KernelCache::KernelCache(std::string host, uint32_t threads, const Dialect& dialect)
    : dialect_(dialect), cxx_(environment::Cxx()), environment_(Environment(host, cxx_, dialect)), threads_(threads) {}

std::vector<LoadedKernel> KernelCache::Get(const std::string& preamble, std::span<const KernelSource> kernels) {
  const std::string shared = Hex(Hasher().AddField(environment_).AddField(preamble).Finish());
  std::vector<Wanted> wanted;
  std::vector<Digest> keys;
  for (const KernelSource& kernel : kernels) {
    std::string text = dialect_.text(kernel);
    const Digest key = Hasher().AddField(shared).AddField(kernel.name).AddField(text).Finish();
    keys.push_back(key);
    wanted.push_back({key, RunSymbol(kernel), std::move(text)});
  }
  std::vector<LoadedKernel> functions(kernels.size());
  const auto lookup = [&] {
    const std::lock_guard lock(mutex_);
    bool all = true;
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = functions_.find(keys[i]);
      if (functions[i].run == nullptr && found != functions_.end()) {
        if (auto library = found->second.library.lock()) functions[i] = {found->second.run, std::move(library)};
      }
      all &= functions[i].run != nullptr;
    }
    return all;
  };
  if (lookup()) return functions;
  const std::lock_guard lock(compile_mutex_);
  if (lookup()) return functions;  // another thread compiled them meanwhile
  std::vector<Wanted> missing;
  std::set<Digest> seen;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (functions[i].run == nullptr && seen.insert(keys[i]).second) missing.push_back(std::move(wanted[i]));
  }
  Loaded loaded;  // keeps them until they are in `functions`
  LoadFromDisk(missing, loaded);
  if (!missing.empty()) Compile(preamble, std::move(missing), loaded);
  Remember(loaded);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (functions[i].run == nullptr) functions[i] = loaded.at(keys[i]);
  }
  return functions;
}

void KernelCache::Remember(const Loaded& loaded) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, kernel] : loaded) functions_[key] = {kernel.run, kernel.library};
  if (functions_.size() < forget_from_) return;
  std::erase_if(functions_, [](const auto& entry) { return entry.second.library.expired(); });
  forget_from_ = std::max(kForgetFrom, 2 * functions_.size());
}

// Finds the kernel's function in a library. Each kernel holds the library once: the loader counts, and maps it once.
bool KernelCache::LoadFrom(const std::string& library, const Wanted& wanted, Loaded& loaded) {
  std::shared_ptr<const void> handle = OpenLibrary(library);
  void* symbol = handle == nullptr ? nullptr : dlsym(const_cast<void*>(handle.get()), wanted.symbol.c_str());
  if (symbol == nullptr) return false;
  loaded[wanted.key] = {reinterpret_cast<KernelFunction>(symbol), std::move(handle)};
  return true;
}

void KernelCache::LoadFromDisk(std::vector<Wanted>& missing, Loaded& loaded) {
  const Stopwatch stopwatch;
  std::vector<Digest> keys;
  for (const Wanted& kernel : missing) keys.push_back(kernel.key);
  const std::map<Digest, std::string> libraries = disk_.Find(keys);
  const size_t count = std::erase_if(missing, [&](const Wanted& kernel) {
    const auto found = libraries.find(kernel.key);
    return found != libraries.end() && LoadFrom(found->second, kernel, loaded);
  });
  if (count > 0) LogPhase("software: disk cache", stopwatch.Milliseconds(), Plural(count, "kernel"));
}

void KernelCache::Compile(const std::string& preamble, std::vector<Wanted> missing, Loaded& loaded) {
  const Stopwatch stopwatch;
  const std::vector<std::string> compiler = FindCompiler(cxx_);
  std::vector<size_t> sizes;
  for (const Wanted& kernel : missing) sizes.push_back(kernel.text.size());
  const std::vector<std::vector<size_t>> batches = Batches(sizes, threads_);
  const auto unit = [](const std::string& folder, size_t i) { return folder + "/unit" + std::to_string(i); };

  TemporaryFolder folder([&](const std::string& path) {
    int error = WriteHeaders(path + "/include");
    for (size_t i = 0; i < batches.size() && error == 0; ++i) {
      std::string text(dialect_.prologue);
      text += preamble;
      for (const size_t kernel : batches[i]) text += "\n" + missing[kernel].text;
      error = WriteFile(unit(path, i) + ".cc", text);
    }
    return error;
  });
  try {
    ParallelFor(batches.size(), threads_, [&](size_t i) {
      const std::string name = unit(folder.path(), i);
      CompileLibrary(compiler, dialect_.flags, folder.path() + "/include", name + ".cc", name + ".so");
    });
  } catch (...) {
    folder.Keep();  // the error names its files
    throw;
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    const std::string library = unit(folder.path(), i) + ".so";
    std::vector<Digest> keys;
    for (const size_t kernel : batches[i]) keys.push_back(missing[kernel].key);
    disk_.Add(library, keys);
    for (const size_t kernel : batches[i]) {
      if (LoadFrom(library, missing[kernel], loaded)) continue;
      const char* reason = dlerror();
      const std::string message = reason == nullptr ? "unknown reason" : reason;
      // A folder for temporary files that code may not be run from: the cache may be elsewhere.
      const auto cached = disk_.Find({&missing[kernel].key, 1});
      if (!cached.empty() && LoadFrom(cached.begin()->second, missing[kernel], loaded)) continue;
      throw FailedPrecondition("the kernels compiled for software Metal could not be loaded: " + message +
                               "; set TMPDIR or PJRT_METAL_CACHE_DIR to a folder that programs may be loaded from");
    }
  }
  LogPhase("software: compile", stopwatch.Milliseconds(),
           Plural(missing.size(), "kernel") + " in " + Plural(batches.size(), "unit") + " with " + compiler[0]);
}

}  // namespace pjrt_metal::software
