// PJRT_Event: a client's hold on a runtime Event.
#include <optional>

#include "csrc/pjrt/entry.h"
#include "csrc/pjrt/objects.h"

namespace pjrt_metal {
namespace {

void Destroy(PJRT_Event_Destroy_Args& args) { DestroyHandle(args.event, "event"); }

void IsReady(PJRT_Event_IsReady_Args& args) { args.is_ready = Required(args.event, "event").event->IsReady(); }

void GetError(PJRT_Event_Error_Args& args) {
  const Event& event = *Required(args.event, "event").event;
  if (!event.IsReady()) throw FailedPrecondition("the event is not ready: call Await first");
  if (const std::optional<Error> error = event.Await()) throw *error;
}

void Await(PJRT_Event_Await_Args& args) {
  if (const std::optional<Error> error = Required(args.event, "event").event->Await()) throw *error;
}

void OnReady(PJRT_Event_OnReady_Args& args) {
  Event& event = *Required(args.event, "event").event;
  if (args.callback == nullptr) throw InvalidArgument("callback is null");
  if (const std::optional<Error> error = event.WaitsForItself()) throw *error;  // asked for by who then waits
  event.OnReady([callback = args.callback, user_arg = args.user_arg](const std::optional<Error>& error) {
    callback(error ? NewError(*error) : nullptr, user_arg);
  });
}

void Create(PJRT_Event_Create_Args& args) { args.event = new PJRT_Event{std::make_shared<Event>(), true}; }

void Set(PJRT_Event_Set_Args& args) {
  const PJRT_Event& given = Required(args.event, "event");
  if (!given.of_client) throw FailedPrecondition("the event is not one that PJRT_Event_Create made");
  Event& event = *given.event;
  if (event.IsReady()) throw FailedPrecondition("the event is already set");
  if (args.error_code == PJRT_Error_Code_OK) {
    event.Set();
  } else {
    event.Set(ErrorFromClient(args.error_code, args.error_message, args.error_message_size));
  }
}

}  // namespace

void FillEventFunctions(PJRT_Api& api) {
  api.PJRT_Event_Destroy = Entry<Destroy>;
  api.PJRT_Event_IsReady = Entry<IsReady>;
  api.PJRT_Event_Error = Entry<GetError>;
  api.PJRT_Event_Await = Entry<Await>;
  api.PJRT_Event_OnReady = Entry<OnReady>;
  api.PJRT_Event_Create = Entry<Create>;
  api.PJRT_Event_Set = Entry<Set>;
}

}  // namespace pjrt_metal
