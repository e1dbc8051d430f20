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

#pragma GCC visibility push(default)
extern void *_NSConcreteStackBlock[32];
extern const char _dispatch_source_type_memorypressure;
id MTLCopyAllDevices(void);
void *dispatch_source_create(const void *type, uintptr_t handle, uintptr_t mask, void *queue);
void dispatch_source_set_event_handler_f(void *source, void (*handler)(void *));
void dispatch_resume(void *source);
#pragma GCC visibility pop

// Guards everything that the threads of a process and the GPU's share.
extern pthread_mutex_t fake_lock;
// Records a breach, a line each.
void Violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define CHECK(condition, ...)                 \
  do {                                        \
    if (!(condition)) Violation(__VA_ARGS__); \
  } while (0)
// Whether the test asked for this failure.
bool Fails(const char *what);
int64_t MacosMajor(void);

// --- Foundation ---

__attribute__((objc_root_class))
@interface NSObject {
  Class isa;
 @public
  long references;
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
bool Alive(NSObject *object);

struct Autoreleased {
  id object;
  struct Autoreleased *next;
};
@interface NSAutoreleasePool : NSObject {
  struct Autoreleased mark;
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

@interface NSError : NSObject {
 @public
  char *text;
  const char *domain;
  int64_t code;
}
- (id)localizedDescription;
- (id)domain;
- (int64_t)code;
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
  bool owned;
}
@end

@interface MTLFunction : NSObject {
 @public
  int kernel;  // 0: add, 1: byte copy
}
@end
@interface MTLComputePipelineState : MTLFunction {
 @public
  uint64_t limit;  // threads in a threadgroup that its descriptor allowed; 0: as many as there can be
}
@end

@interface MTLLibrary : NSObject {
 @public
  char *source;
}
@end

@interface MTLCompileOptions : NSObject {
 @public
  bool safe, precise;
  uint64_t language;
}
@end

// --- Metal: commands (commands.m) ---

typedef struct {
  int kernel;  // 2: blit
  MTLBuffer *buffers[3];
  uint64_t offsets[3];
  float scale;
  uint64_t count;
} Command;

@class MTLCommandBuffer;
@interface MTLCommandEncoder : NSObject {
 @public
  MTLCommandBuffer *owner;
  bool ended;
}
@end
@interface MTLCommandBuffer : NSObject {
 @public
  MTLCommandEncoder *open;
  Command commands[16];
  int count;
  uint64_t status;
  Block *handler;
  id error;
  MTLCommandBuffer *next;
}
@end

@interface MTLComputeCommandEncoder : MTLCommandEncoder {
 @public
  Command now;
  MTLComputePipelineState *state;
}
@end
@interface MTLBlitCommandEncoder : MTLCommandEncoder
@end

@interface MTLCommandQueue : NSObject
- (id)commandBuffer;
@end

// --- Metal: the device (device.m) ---

@interface MTLDevice : NSObject
- (id)newBufferWithLength:(uint64_t)length options:(uint64_t)options;
- (id)newComputePipelineStateWithFunction:(MTLFunction *)function error:(id *)error;
@end
