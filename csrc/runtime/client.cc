#include "csrc/runtime/client.h"

#include <algorithm>
#include <cstring>
#include <locale>
#include <sstream>

#include "csrc/runtime/forked.h"
#include "csrc/runtime/library_trial.h"

namespace pjrt_metal {
namespace {

constexpr double kDefaultMemoryFraction = 0.75;  // the rest is the system's and other programs'

bool Flag(const std::string& name, const std::string& text) {
  if (text != "true" && text != "false") {
    throw InvalidArgument("option " + name + "=" + text + ": expected true or false");
  }
  return text == "true";
}

double Fraction(const std::string& text) {
  // Not std::from_chars: macOS 13's C++ library has none for floating point.
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  double value = 0;
  if (!(stream >> value) || !stream.eof() || !(value > 0) || value > 1) {
    throw InvalidArgument("option memory_fraction=" + text + ": expected a number above 0 and at most 1");
  }
  return value;
}

// Dimensions of one element may have any stride.
bool IsDense(std::span<const int64_t> dims, std::span<const int64_t> strides, std::span<const int64_t> wanted) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > 1 && strides[i] != wanted[i]) return false;
  }
  return true;
}

}  // namespace

const char* MemorySpace::kind_name() const {
  switch (kind_) {
    case MemoryKind::kDevice:
      return "device";
    case MemoryKind::kPinnedHost:
      return "pinned_host";
    case MemoryKind::kUnpinnedHost:
      return "unpinned_host";
  }
  return "";
}

LogicalDevice::LogicalDevice(Client* client, int id, Device* device, uint64_t memory_limit)
    : client_(client),
      id_(id),
      device_(device),
      allocator_(std::make_shared<Allocator>(device, memory_limit)),
      queue_(std::make_unique<Queue>()),
      in_flight_(*queue_) {
  device_->OnMemoryPressure([weak = std::weak_ptr(allocator_)] {
    if (const auto allocator = weak.lock()) allocator->ReleaseCached();
  });
  constexpr MemoryKind kKinds[] = {MemoryKind::kDevice, MemoryKind::kPinnedHost, MemoryKind::kUnpinnedHost};
  for (const MemoryKind kind : kKinds) {
    const int number = id * static_cast<int>(std::size(kKinds)) + static_cast<int>(kind);
    memories_.push_back(std::make_unique<MemorySpace>(this, number, kind));
  }
}

AllocationRef LogicalDevice::Allocate(size_t bytes, const std::string& tag) {
  while (true) {
    try {
      return allocator_->Allocate(bytes, tag);
    } catch (const Error& error) {
      if (error.code() != Code::kResourceExhausted || !in_flight_.AwaitOldest()) throw;
    }
  }
}

AllocationRef LogicalDevice::AllocateArena(size_t bytes, const std::string& tag) {
  if (allocator_->poisons()) return Allocate(bytes, tag);  // and not what another execution has left
  AllocationRef arena = arena_.lock();
  if (arena && arena->size() >= bytes) return arena;
  arena.reset();
  arena = Allocate(bytes, tag);
  arena_ = arena;
  return arena;
}

std::unique_ptr<Buffer> LogicalDevice::FromHost(MemorySpace* memory, const void* data, DType dtype,
                                                std::vector<int64_t> dims, std::span<const int64_t> byte_strides,
                                                std::span<const int64_t> minor_to_major, bool zero_copy,
                                                std::function<void()> on_done) {
  RefuseIfForked();
  const size_t bytes = DenseBytes(dtype, dims);
  const size_t element = Info(dtype).host_bits / 8;
  std::vector<int64_t> order(minor_to_major.begin(), minor_to_major.end());
  if (order.empty()) {
    for (size_t i = dims.size(); i > 0; --i) order.push_back(static_cast<int64_t>(i - 1));
  }
  const std::vector<int64_t> strides = DenseStrides(dims, order, element);
  std::vector<int64_t> source(byte_strides.begin(), byte_strides.end());
  if (source.empty()) {
    std::vector<int64_t> row_major;
    for (size_t i = dims.size(); i > 0; --i) row_major.push_back(static_cast<int64_t>(i - 1));
    source = DenseStrides(dims, row_major, element);
  }
  auto storage = std::make_shared<Storage>();
  storage->defined = Event::Ready();
  if (zero_copy && bytes > 0 && IsDense(dims, source, strides)) {
    storage->allocation = device_->Wrap(const_cast<void*>(data), bytes);
  }
  if (storage->allocation != nullptr) {
    storage->on_release = std::move(on_done);
  } else {
    storage->allocation = Allocate(bytes, "arrays from the host");
    if (bytes > 0) {
      CopyStrided(static_cast<const std::byte*>(data), source, storage->allocation->data(), strides, dims, element);
    }
    if (on_done) on_done();
  }
  return std::make_unique<Buffer>(memory, dtype, std::move(dims), std::move(order), std::move(storage));
}

std::unique_ptr<Buffer> LogicalDevice::Uninitialized(MemorySpace* memory, DType dtype, std::vector<int64_t> dims,
                                                     std::span<const int64_t> minor_to_major, EventRef defined) {
  RefuseIfForked();
  auto storage = std::make_shared<Storage>();
  storage->allocation = Allocate(DenseBytes(dtype, dims), "arrays from the host");
  storage->defined = std::move(defined);
  if (minor_to_major.empty()) return std::make_unique<Buffer>(memory, dtype, std::move(dims), std::move(storage));
  return std::make_unique<Buffer>(memory, dtype, std::move(dims),
                                  std::vector<int64_t>(minor_to_major.begin(), minor_to_major.end()),
                                  std::move(storage));
}

Client::Client(const std::map<std::string, std::string>& options) {
  NoteForks();
  double fraction = kDefaultMemoryFraction;
  std::string compiler_version;
  for (const auto& [name, value] : options) {
    if (name == "memory_fraction") {
      fraction = Fraction(value);
    } else if (name == "trusted_programs") {
      trusts_programs_ = Flag(name, value);
    } else if (name == "ignore_host_layout") {
      ignores_host_layout_ = Flag(name, value);
    } else if (name == "compiler_version") {
      compiler_version = value;
    } else if (name == "trial_command") {
      SetTrialCommand(value);
    } else {
      throw InvalidArgument("unknown client option \"" + name +
                            "\"; the options are: memory_fraction, trusted_programs, ignore_host_layout, "
                            "compiler_version, trial_command");
    }
  }
  hardware_ = DiscoverDevices();
  for (size_t i = 0; i < hardware_.size(); ++i) {
    const auto limit = static_cast<uint64_t>(fraction * static_cast<double>(hardware_[i]->info().memory_bytes));
    devices_.push_back(std::make_unique<LogicalDevice>(this, static_cast<int>(i), hardware_[i].get(), limit));
  }
  platform_version_ = hardware_.front()->info().platform_version;
  if (!compiler_version.empty()) platform_version_ += ", compiler " + compiler_version;
}

Client::~Client() {
  for (const auto& device : devices_) device->queue().Drain();
}

}  // namespace pjrt_metal
