#include "csrc/software/strict_run.h"

#ifdef __linux__
#include <link.h>
#endif

#include <algorithm>
#include <cstring>
#include <memory>

#include "csrc/software/strict_unit.h"

namespace pjrt_metal::software {
namespace {

// The addresses of the library that holds the kernel's function.
void FindImage([[maybe_unused]] StrictKernel& kernel) {
#ifdef __linux__
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* context) {
        auto& k = *static_cast<StrictKernel*>(context);
        uintptr_t begin = UINTPTR_MAX, end = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD) continue;
          begin = std::min<uintptr_t>(begin, info->dlpi_addr + header.p_vaddr);
          end = std::max<uintptr_t>(end, info->dlpi_addr + header.p_vaddr + header.p_memsz);
        }
        const auto function = reinterpret_cast<uintptr_t>(k.run);
        if (function < begin || function >= end) return 0;
        k.image_begin = begin;
        k.image_end = end;
        return 1;
      },
      &kernel);
#endif
}

std::string Hexadecimal(const std::byte* data, size_t bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "0x";
  for (size_t i = bytes; i-- > 0;) {
    text += kDigits[static_cast<unsigned>(data[i]) >> 4];
    text += kDigits[static_cast<unsigned>(data[i]) & 15];
  }
  return text;
}

void Compare(const StrictKernel& kernel, const std::vector<Piece>& pieces, const Memory& forward, const Memory& other,
             Order order) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::byte *a = forward.copy(i), *b = other.copy(i);
    const size_t bytes = pieces[i].bytes;
    if (!pieces[i].writable || bytes == 0 || std::memcmp(a, b, bytes) == 0) continue;
    const size_t at = static_cast<size_t>(std::mismatch(a, a + bytes, b).first - a) / 4 * 4;
    const size_t length = std::min<size_t>(4, bytes - at);
    throw Internal(Describe(kernel) + ": its result depends on the order of threads: at byte " + std::to_string(at) +
                   " of " + pieces[i].name + " (" + std::to_string(bytes) + " bytes) it stores " +
                   Hexadecimal(a + at, length) + " when they run forward, " + Hexadecimal(b + at, length) + " " +
                   Name(order) + " [strict software Metal]");
  }
}

}  // namespace

const Dialect& StrictDialect() {
  static const Dialect dialect = {StrictPrologue(), StrictKernelText, StrictFlags()};
  return dialect;
}

const Dialect& CheckedDialect() {
  static const Dialect dialect = {CheckedPrologue(), CheckedKernelText, CheckedFlags()};
  return dialect;
}

bool SupportsStrictKernels() {
#ifdef __linux__
  return true;
#else
  return false;  // FindImage cannot
#endif
}

StrictKernel MakeStrictKernel(const KernelSource& source, LoadedKernel loaded) {
  StrictKernel kernel = {source.name, reinterpret_cast<StrictFunction>(reinterpret_cast<void*>(loaded.run)), 0, 0,
                         std::move(loaded.library)};
  FindImage(kernel);
  return kernel;
}

// Each order starts from what the buffers hold now; the first one's results are kept.
void StrictRunner::Run(const StrictKernel& kernel, const Geometry& geometry, const std::vector<Piece>& pieces,
                       bool takes_args, std::vector<Touched>* touched) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Memory> first;
  for (uint32_t i = 0; i < orders_; ++i) {
    const auto order = static_cast<Order>(i);
    auto memory = std::make_unique<Memory>(geometry, pieces);
    std::vector<void*> addresses;
    for (size_t j = 0; j < pieces.size(); ++j) addresses.push_back(memory->copy(j));
    machine_.Run(kernel, geometry, *memory, addresses, takes_args ? addresses.back() : nullptr, order);
    if (first == nullptr) {
      first = std::move(memory);
    } else {
      Compare(kernel, pieces, *first, *memory, order);
    }
  }
  first->CopyBack();
  if (touched != nullptr) *touched = first->WhatWasTouched();
}

}  // namespace pjrt_metal::software
