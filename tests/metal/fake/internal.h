// What the files of the fake Metal share: the classes with their fields, and how a breach of
// Metal's protocol is recorded. Objective-C for GNU's runtime.
#pragma once

#include <objc/objc.h>
#include <objc/runtime.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/metal/fake/fake.h"
#include "tests/metal/fake/kernels.h"

typedef struct {
  uint64_t width, height, depth;
} MTLSize;
typedef struct {
  int64_t major, minor, patch;
} OsVersion;
// A block, by Clang's documented ABI.
typedef struct Block {
  void *isa;
  int32_t flags, reserved;
  void (*invoke)(struct Block *, id);
  struct {
    unsigned long reserved, size;
    const char *signature;
  } *descriptor;
} Block;

extern void *_NSConcreteStackBlock[32];
extern const char _dispatch_source_type_memorypressure;
void *dispatch_source_create(const void *type, uintptr_t handle, uintptr_t mask, void *queue);
void dispatch_source_set_event_handler_f(void *source, void (*handler)(void *));
void dispatch_resume(void *source);

// Guards what threads share.
extern pthread_mutex_t fake_lock;
// Records a breach, a line each.
void Violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define CHECK(condition, ...)                 \
  do {                                        \
    if (!(condition)) Violation(__VA_ARGS__); \
  } while (0)
// Whether the test asked for this failure.
bool Fails(const char *what);
bool AllocationFails(void);
// The code of a "run:<code>", 8 (out of memory) of a plain "run", else 0.
int64_t FailingRun(void);
int64_t MacosMajor(void);
int64_t Family(void);

// --- Foundation (foundation.m) ---

__attribute__((objc_root_class))
@interface NSObject {
  Class isa;
 @public
  long references;
  Class was;  // of a zombie
}
+ (id)alloc;
- (id)init;
- (id)retain;
- (void)release;
- (void)dealloc;
- (BOOL)respondsToSelector:(SEL)selector;
@end

// Gives the thread's innermost pool a reference.
id Autorelease(id object);
// Whether it has references. For arguments; messages to a zombie are noticed by themselves.
bool Alive(NSObject *object);

struct Autoreleased {
  id object;
  struct Autoreleased *next;
};
@interface NSAutoreleasePool : NSObject {
  struct Autoreleased mark;
  bool drained;  // with one around it, against the rules
}
@end

@interface NSString : NSObject {
 @public
  char *text;
}
- (id)initWithBytes:(const void *)bytes length:(uint64_t)length encoding:(uint64_t)encoding;
- (const char *)UTF8String;
@end
NSString *MakeString(const char *text);

// Of one key.
@interface NSDictionary : NSObject {
 @public
  id key, object;
}
@end

@interface NSError : NSObject {
 @public
  char *text;
  const char *domain;
  int64_t code;
  NSDictionary *details;  // or nil
}
- (id)localizedDescription;
- (id)domain;
- (int64_t)code;
- (id)userInfo;
@end
// Autoreleased.
id MakeError(const char *domain, int64_t code, const char *text);

@interface NSProcessInfo : NSObject
@end

@interface NSArray : NSObject {
 @public
  id only;
}
@end

@interface NSURL : NSObject {
 @public
  NSString *path;
}
@end

// --- Metal: resources (resources.m) ---

@interface MTLBuffer : NSObject {
 @public
  char *bytes;
  uint64_t length;
  uint64_t options;
  char *pages;  // what was mapped for it; NULL if the memory is the caller's
  uint64_t mapped;
}
@end
// Bytes of memory that is not the device's, added or taken away.
void CountWrapped(long bytes);
MTLBuffer *MakeBuffer(uint64_t length, uint64_t options);

@interface MTLFunction : NSObject {
 @public
  const FakeKernel *kernel;
}
@end
@interface MTLComputePipelineState : NSObject {
 @public
  const FakeKernel *kernel;
  uint64_t limit;  // threads in a threadgroup that its descriptor allowed; 0: as many as there can be
}
- (uint64_t)maxTotalThreadsPerThreadgroup;
@end

@interface MTLLibrary : NSObject {
 @public
  const FakeKernel *kernels;  // the first of its kernels
}
@end

@interface MTLCompileOptions : NSObject {
 @public
  bool safe, precise;
  uint64_t language;
}
@end

// --- Metal: commands (commands.m, gpu.m) ---

@class MTLCommandBuffer;

// What an error tells of an encoder (faults.m).
@interface MTLCommandBufferEncoderInfo : NSObject {
 @public
  NSString *label;
  int64_t state;  // MTLCommandEncoderErrorState
}
@end
enum { kEncoderUnknown = 0, kEncoderDone = 1, kEncoderFaulted = 4 };

// What the GPU does. A subclass holds references to all that it needs.
@interface FakeCommand : NSObject {
 @public
  MTLCommandBufferEncoderInfo *encoder;  // the command buffer keeps it
  bool after_barrier;                    // waits for all commands before it
}
- (void)runIn:(MTLCommandBuffer *)buffer;
@end

@interface MTLCommandQueue : NSObject {
 @public
  int places;       // as many command buffers may be on their way
  int outstanding;  // command buffers that have not completed
  int uncommitted;  // of those
}
@end
@interface MTLCommandBufferDescriptor : NSObject {
 @public
  uint64_t options;
}
@end

@interface MTLCommandEncoder : NSObject {
 @public
  MTLCommandBuffer *owner;
  MTLCommandBufferEncoderInfo *info;  // the command buffer keeps it
  bool ended, concurrent, after_barrier;
}
- (void)endEncoding;
// Takes over the reference.
- (void)add:(FakeCommand *)command;
@end

// MTLCommandBufferStatus.
enum { kNotEnqueued = 0, kCommitted = 2, kCompleted = 4, kFailed = 5 };
@interface MTLCommandBuffer : NSObject {
 @public
  MTLCommandQueue *queue;
  MTLCommandEncoder *open;
  FakeCommand **commands;
  size_t count;
  uint64_t status;
  double gpu_start, gpu_end;
  MTLCommandBufferEncoderInfo **encoders;
  size_t encoder_count;
  Block *handler;
  struct GraphHandler {
    Block *block;
    struct GraphHandler *next;
  } *graph_handlers;  // MPSGraph's, of the calls in it
  NSError *error;
  MTLCommandBuffer *next;  // in one of the GPU's lists
}
@end
// Ends its run with an error of MTLCommandBufferErrorDomain.
void FailCommandBuffer(MTLCommandBuffer *buffer, int64_t code, const char *text);
// The encoders of a command buffer, as an error's userInfo has them.
NSDictionary *MakeEncoderDetails(MTLCommandBuffer *buffer);

// What a compute encoder has bound at an index.
typedef struct {
  NSObject *owner;
  FakeSpan span;
  uint64_t offset;
} Bound;
@interface MTLComputeCommandEncoder : MTLCommandEncoder {
 @public
  Bound bound[kFakeMaxBuffers];
  MTLComputePipelineState *state;
}
@end

// The GPU takes the committed buffer (and a reference of its own); gpu.m.
void StartCommandBuffer(MTLCommandBuffer *buffer);
// Counts a command buffer that a queue gives out; waits while there are too many.
void TakePlace(MTLCommandQueue *queue);
// One that was never committed is gone.
void GiveUpPlace(MTLCommandQueue *queue);

// --- Metal: the device (device.m) ---

@interface MTLDevice : NSObject
- (id)newBufferWithLength:(uint64_t)length options:(uint64_t)options;
- (id)newComputePipelineStateWithFunction:(MTLFunction *)function error:(id *)error;
@end
