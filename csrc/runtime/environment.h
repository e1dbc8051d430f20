// The environment variables of the plugin, read in one place (the compiler reads PJRT_METAL_DUMP: dump.py).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace pjrt_metal::environment {

// PJRT_METAL_LOG=1: phases and their times on stderr.
bool Log();
// PJRT_METAL_DEVICE=gpu|software: which device to use; empty: the best there is.
std::string DeviceChoice();
// PJRT_METAL_CXX: the host compiler of the software device; empty: look for one.
std::string Cxx();
// PJRT_METAL_CXX_SECONDS: a run of the host compiler that takes longer is taken to hang; nothing: 600. Throws
// InvalidArgument unless it is a number from 1 to 100000.
uint32_t CxxSeconds();
// PJRT_METAL_CACHE_DIR: where compiled kernels are kept; empty: the user's cache folder.
std::string CacheDir();
// PJRT_METAL_CACHE_MB: how many megabytes they may take; nothing: 512. Throws InvalidArgument unless it is a number
// from 1 to 2^30.
std::optional<uint32_t> CacheMegabytes();
// PJRT_METAL_THREADS: threads of the software device; nothing: one a usable core. Throws InvalidArgument
// unless it is a number from 1 to 1024.
std::optional<uint32_t> Threads();
// PJRT_METAL_STRICT=software|apple7|apple8|apple9: the software device checks every access of its own kernels, or of
// those of that GPU family; empty: it does not.
std::string Strict();
// PJRT_METAL_POISON=1: device memory that holds nothing holds bytes of 0xff.
bool Poison();
// PJRT_METAL_STRICT_ORDERS: in how many orders of threads the strict device runs each launch; nothing:
// in all it knows. Throws InvalidArgument unless it is 1, 2 or 3.
std::optional<uint32_t> StrictOrders();
// PJRT_METAL_LIBRARY=auto|mpsgraph|kernels: who does contractions that MPSGraph can do. Throws InvalidArgument for
// anything else; nothing: auto.
enum class Library { kAuto, kMpsgraph, kKernels };
Library LibraryChoice();
// PJRT_METAL_CAPTURE=path.gputrace: record the GPU's work there; empty: do not.
std::string Capture();
// PJRT_METAL_RESIDENCY=0: the GPU's memory is not kept resident between submissions.
bool Residency();
// Apple's MTL_SHADER_VALIDATION: Metal instruments kernels, so compiled ones must not be kept.
bool ShaderValidation();
// The user's home folder and the platform's cache folder variable, for the default cache location.
std::string Home();
std::string XdgCacheHome();

}  // namespace pjrt_metal::environment
