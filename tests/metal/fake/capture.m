// Recordings of the GPU's work, and the system's notice that memory is short.
#include <stdio.h>

#include "tests/metal/fake/internal.h"

static char recording[1024];  // the path; empty: none is under way

@interface MTLCaptureDescriptor : NSObject {
 @public
  id object;
  int64_t destination;
  NSURL *url;
}
@end
@implementation MTLCaptureDescriptor
- (void)setCaptureObject:(id)new_object {
  object = [new_object retain];
}
- (void)setDestination:(int64_t)new_destination {
  destination = new_destination;
}
- (void)setOutputURL:(NSURL *)new_url {
  url = [new_url retain];
}
- (void)dealloc {
  [object release];
  [url release];
  [super dealloc];
}
@end

@interface MTLCaptureManager : NSObject
@end
@implementation MTLCaptureManager
+ (id)sharedCaptureManager {
  return Autorelease([MTLCaptureManager alloc]);
}
- (BOOL)supportsDestination:(int64_t)destination {
  return destination == 2 && !Fails("destination");
}
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor *)descriptor error:(id *)error {
  CHECK(strcmp(object_getClassName(descriptor->object), "MTLDevice") == 0, "no device to record");
  CHECK(descriptor->destination == 2 && descriptor->url != nil, "no document to record into");
  if (Fails("capture")) {
    *error = MakeError("MTLCaptureError", 1, "Capturing is not supported");
    return NO;
  }
  CHECK(recording[0] == 0, "two recordings at once");
  snprintf(recording, sizeof recording, "%s", [descriptor->url->path UTF8String]);
  return YES;
}
- (void)stopCapture {
  CHECK(recording[0] != 0, "a recording stopped that was not begun");
  FILE *file = fopen(recording, "w");
  if (file != NULL) fclose(file);
  recording[0] = 0;
}
@end

// --- libdispatch ---

const char _dispatch_source_type_memorypressure = 0;
static void (*on_pressure)(void *);
static bool resumed;

void *dispatch_source_create(const void *type, uintptr_t handle, uintptr_t mask, void *queue) {
  CHECK(type == &_dispatch_source_type_memorypressure && handle == 0 && mask == (2 | 4) && queue == NULL,
        "no source of memory pressure");
  return &resumed;
}
void dispatch_source_set_event_handler_f(void *source, void (*handler)(void *)) {
  CHECK(source == &resumed && !resumed, "handler of no source, or of one that runs");
  on_pressure = handler;
}
void dispatch_resume(void *source) {
  CHECK(source == &resumed && on_pressure != NULL, "a source resumed without a handler");
  resumed = true;
}
bool FakeMemoryPressure(void) {
  if (resumed) on_pressure(NULL);
  return resumed;
}
