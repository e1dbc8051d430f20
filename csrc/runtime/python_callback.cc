#include "csrc/runtime/python_callback.h"

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/runtime/event.h"

namespace pjrt_metal {
namespace {

struct Registered {
  std::mutex mutex;
  std::condition_variable idle;
  PythonCallback callback = nullptr;
  int running = 0;
};

Registered& TheRegistered() {
  static Registered* const registered = new Registered;  // never destroyed: runtime threads may outlive main
  return *registered;
}

// Holds the callback in place while it runs.
class Running {
 public:
  Running() {
    Registered& registered = TheRegistered();
    const std::lock_guard lock(registered.mutex);
    callback = registered.callback;
    ++registered.running;
  }
  ~Running() {
    Registered& registered = TheRegistered();
    const std::lock_guard lock(registered.mutex);
    if (--registered.running == 0) registered.idle.notify_all();
  }
  PythonCallback callback;
};

void Emit(void* sink, const char* bytes, size_t size) { static_cast<std::string*>(sink)->assign(bytes, size); }

class PythonCall : public HostCall {
 public:
  explicit PythonCall(const Step& step) : operands_(step.operands), arrays_(step.arrays) {
    const void* id = step.attributes->FindScalar("id", DType::kU64);
    if (id == nullptr) throw InvalidArgument(std::string(kPythonCallback) + " has no attribute \"id\" of type u64");
    std::memcpy(&id_, id, sizeof id_);
  }

  bool runs_programs() const override { return true; }

  void Run(std::span<std::byte* const> addresses, const FfiUserData*) const override {
    std::vector<PythonArray> arrays;
    arrays.reserve(arrays_.size());
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const auto& [dtype, dims] = arrays_[i];
      const size_t bytes = dtype == DType::kToken ? 0 : DenseBytes(dtype, dims);
      arrays.push_back({static_cast<int>(dtype), addresses[i], dims.data(), dims.size(), bytes});
    }
    const Running running;
    if (running.callback == nullptr) {
      throw Error(Code::kUnavailable, "the program calls back into Python, which is not there (any more)");
    }
    std::string message;
    Event::TakeRefusal();
    const int code = running.callback(id_, arrays.data(), operands_, arrays.data() + operands_,
                                      arrays.size() - operands_, Emit, &message);
    if (code == 0) return;
    if (const std::optional<Error> refusal = Event::TakeRefusal())
      throw Error(refusal->code(), refusal->what() + ("\n" + message));
    throw Error(static_cast<Code>(code), message);
  }

 private:
  uint64_t id_;
  const size_t operands_;
  const std::vector<HostArray> arrays_;
};

}  // namespace

void SetPythonCallback(PythonCallback callback) {
  Registered& registered = TheRegistered();
  std::unique_lock lock(registered.mutex);
  registered.callback = callback;
  if (callback == nullptr) registered.idle.wait(lock, [&] { return registered.running == 0; });
}

std::unique_ptr<HostCall> NewPythonCall(const Step& step) { return std::make_unique<PythonCall>(step); }

}  // namespace pjrt_metal
