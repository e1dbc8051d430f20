// The Objective-C runtime in plain C++: how a message is sent, who owns an object, how a block
// looks. The only file pair that knows which runtime this is: Apple's (objc_msgSend), or, in tests,
// GNU's (objc_msg_lookup) with a fake Metal.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "csrc/metal/selectors.h"

namespace pjrt_metal::metal {

using Implementation = void (*)();

struct Runtime {
  std::string missing;                                  // empty if Metal is here; else what is not
  Implementation message_send = nullptr;                // Apple's: does the lookup and the jump
  Implementation (*message_lookup)(Id, Sel) = nullptr;  // GNU's: only the lookup
  Id (*copy_all_devices)() = nullptr;
  Id (*create_default_device)() = nullptr;
  Id* encoder_info_key = nullptr;  // a string of Metal's
  void* stack_block_class = nullptr;
  Id (*get_class)(const char*) = nullptr;
  std::array<Sel, kMessages> selectors{};
  std::array<Id, kClasses> classes{};
};

// Loaded at the first call: on macOS from the system's libraries, elsewhere from symbols that the
// process already has (a test's fake Metal); never fails, see `missing`.
const Runtime& GetRuntime();

// MPSGraph and what belongs to it; loaded at the first call, which GetRuntime() must have found no fault for.
struct GraphRuntime {
  std::string missing;  // empty if it is here; else what is not
  std::array<Id, kGraphClasses> classes{};
};
const GraphRuntime& GetGraphRuntime();

template <typename Signature>
struct Sender;
template <typename Result, typename... Parameters>
struct Sender<Result(Parameters...)> {
  static Result Call(Id receiver, Message message, Parameters... parameters) {
    const Runtime& runtime = GetRuntime();
    const Sel selector = runtime.selectors[static_cast<size_t>(message)];
    const Implementation implementation =
        runtime.message_send != nullptr ? runtime.message_send : runtime.message_lookup(receiver, selector);
    return reinterpret_cast<Result (*)(Id, Sel, Parameters...)>(implementation)(receiver, selector, parameters...);
  }
};

// Sends a message that every supported macOS has. `receiver` must not be nil.
template <Message message, typename... Arguments>
auto Send(Id receiver, Arguments... arguments) {
  static_assert(AlwaysThere(kMessageFacts[static_cast<size_t>(message)].macos),
                "newer than the oldest supported macOS: use SendIfAvailable");
  return Sender<typename SignatureOf<message>::type>::Call(receiver, message, arguments...);
}

// Sends a message that only newer systems know; returns whether `receiver` did, or what it returned.
template <Message message, typename... Arguments>
auto SendIfAvailable(Id receiver, Arguments... arguments) {
  using To = Sender<typename SignatureOf<message>::type>;
  using Result = decltype(To::Call(receiver, message, arguments...));
  const bool available =
      Send<Message::kRespondsToSelector>(receiver, GetRuntime().selectors[static_cast<size_t>(message)]);
  if constexpr (std::is_void_v<Result>) {
    if (available) To::Call(receiver, message, arguments...);
    return available;
  } else {
    return available ? std::optional<Result>(To::Call(receiver, message, arguments...)) : std::nullopt;
  }
}

// One owned reference to an object.
class Ref {
 public:
  Ref() = default;
  // Takes over the reference that alloc, new... and copy... return.
  static Ref Adopt(Id object) { return Ref(object); }
  // Adds a reference to an object that somebody else (often an autorelease pool) owns.
  static Ref Retain(Id object) {
    if (object != nullptr) Send<Message::kRetain>(object);
    return Ref(object);
  }
  Ref(const Ref& other) : Ref(Retain(other.object_)) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) Send<Message::kRelease>(object_);
  }
  Id get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Ref(Id object) : object_(object) {}
  Id object_ = nullptr;
};

inline Id Of(Class type) { return GetRuntime().classes[static_cast<size_t>(type)]; }
inline Id Of(GraphClass type) { return GetGraphRuntime().classes[static_cast<size_t>(type)]; }

// alloc and init of a class of the tables; nil if this system is older than the class.
template <typename AnyClass>
Ref New(AnyClass type) {
  if (Of(type) == nullptr) return Ref();
  return Ref::Adopt(Send<Message::kInit>(Send<Message::kAlloc>(Of(type))));
}

// Releases at its end what Metal autoreleased on this thread since its beginning.
class Pool {
 public:
  Pool() : pool_(New(Class::kNSAutoreleasePool)) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  Ref pool_;  // releasing a pool drains it
};

// Throws InvalidArgument if `text` is not UTF-8.
Ref String(std::string_view text);
std::string Text(Id string);
// The URL of a file, autoreleased.
Id FileUrl(std::string_view path);
// "description (domain code)"; `error` may be nil.
std::string ErrorText(Id error);

// Calls `handler` once with the command buffer when it has completed, on a thread of Metal's.
void AddCompletedHandler(Id command_buffer, std::function<void(Id)> handler);
// Makes an MPSGraphExecutableExecutionDescriptor call `handler` with `number` and an NSError or nil: once, or never, or
// at any time, so what it is about goes by number.
void SetGraphCompletionHandler(Id descriptor, uint64_t number, void (*handler)(uint64_t number, Id error));

}  // namespace pjrt_metal::metal
