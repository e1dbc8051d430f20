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
id MTLCopyAllDevices(void);
extern id MTLCommandBufferEncoderInfoErrorKey;
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
  id details;  // owned, or nil
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

// Of one key.
@interface NSDictionary : NSObject {
 @public
  id key, object;
}
@end

@interface NSArray : NSObject {
 @public
  id only;
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
@interface MTLComputePipelineState : MTLFunction
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
  int epoch;  // commands of one may overlap
} Command;

@class MTLCommandBuffer;
@interface MTLCommandEncoder : NSObject {
 @public
  MTLCommandBuffer *owner;
  bool ended, concurrent;
  NSString *label;
  MTLCommandEncoder *next;
}
@end
@interface MTLCommandBuffer : NSObject {
 @public
  MTLCommandEncoder *open;
  Command *commands;
  int count, epoch;
  uint64_t status;
  double gpu_start, gpu_end;
  MTLCommandEncoder *encoders;  // all, the last first
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
@end
@interface MTLCommandBufferDescriptor : NSObject {
 @public
  uint64_t options;
}
@end

// --- What commands access (hazards.m; on the GPU's thread) ---

// The accesses that follow are of commands that may overlap; those before have completed.
void HazardsClear(void);
void HazardsAccess(const char *begin, uint64_t bytes, bool writes, const Command *command);

// --- What the GPU tells of a fault (faults.m) ---

// Autoreleased: the last encoder faulted, those before it completed.
id MakeFault(MTLCommandBuffer *buffer);

// --- Metal: the device (device.m) ---

@interface MTLDevice : NSObject
- (id)newBufferWithLength:(uint64_t)length options:(uint64_t)options;
@end
