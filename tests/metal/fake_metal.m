// A fake of the few Foundation and Metal classes that csrc/metal uses, for GNU's Objective-C
// runtime. It runs one hard-coded kernel ("k_add") and the byte copy, on a thread of its own, and
// records every breach of Metal's protocol: see fake_metal.h. Tests only.
#include "tests/metal/fake_metal.h"

#include <objc/objc.h>
#include <objc/runtime.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  uint64_t width, height, depth;
} MTLSize;
typedef struct {
  int64_t major, minor, patch;
} OsVersion;
typedef struct Block {
  void *isa;
  int32_t flags, reserved;
  void (*invoke)(struct Block *, id);
  struct {
    unsigned long reserved, size;
    const char *signature;
  } *descriptor;
} Block;

void *_NSConcreteStackBlock[32];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char violations[4096];
static long live;
static const char *failing = "";
static int64_t macos_major = 15;

static void Violation(const char *format, ...) {
  pthread_mutex_lock(&lock);
  const size_t used = strlen(violations);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(violations + used, sizeof violations - used - 1, format, arguments);
  va_end(arguments);
  strcat(violations, "\n");
  pthread_mutex_unlock(&lock);
}
#define CHECK(condition, ...)                 \
  do {                                        \
    if (!(condition)) Violation(__VA_ARGS__); \
  } while (0)

const char *FakeViolations(void) { return violations; }
void FakeClear(void) { violations[0] = 0; }
long FakeLive(void) { return __atomic_load_n(&live, __ATOMIC_SEQ_CST); }
void FakeFail(const char *what) { failing = what; }
void FakeMacos(int major) { macos_major = major; }
static bool Fails(const char *what) { return strcmp(failing, what) == 0; }

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

static __thread struct Autoreleased {
  id object;
  struct Autoreleased *next;
} *autoreleased;

static id Autorelease(id object) {
  CHECK(autoreleased != NULL, "%s autoreleased without a pool", object_getClassName(object));
  struct Autoreleased *entry = malloc(sizeof *entry);
  *entry = (struct Autoreleased){object, autoreleased};
  autoreleased = entry;
  return object;
}

static bool Alive(NSObject *object) { return __atomic_load_n(&object->references, __ATOMIC_SEQ_CST) > 0; }

@implementation NSObject
+ (void)initialize {
}
+ (id)alloc {
  NSObject *object = class_createInstance(self, 0);
  object->references = 1;
  __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
  return object;
}
- (id)init {
  return self;
}
- (id)retain {
  CHECK(__atomic_fetch_add(&references, 1, __ATOMIC_SEQ_CST) > 0, "%s retained after its release",
        object_getClassName(self));
  return self;
}
- (void)release {
  const long left = __atomic_sub_fetch(&references, 1, __ATOMIC_SEQ_CST);
  CHECK(left >= 0, "%s released too often", object_getClassName(self));
  if (left == 0) [self dealloc];
}
// Objects stay as zombies, so that a use after release is seen and not undefined.
- (void)dealloc {
  __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
}
- (BOOL)respondsToSelector:(SEL)selector {
  // What macOS 15 brought.
  if (macos_major < 15 && strncmp(sel_getName(selector), "setMath", 7) == 0) return NO;
  return class_getInstanceMethod(isa, selector) != NULL;
}
@end

@interface NSAutoreleasePool : NSObject {
  struct Autoreleased mark;
}
@end
@implementation NSAutoreleasePool
- (id)init {
  mark = (struct Autoreleased){self, autoreleased};
  autoreleased = &mark;
  return self;
}
- (void)dealloc {
  while (autoreleased != &mark) {
    CHECK(autoreleased != NULL, "pools not nested");
    if (autoreleased == NULL) break;
    struct Autoreleased *entry = autoreleased;
    autoreleased = entry->next;
    [entry->object release];
    free(entry);
  }
  autoreleased = mark.next;
  [super dealloc];
}
@end

@interface NSString : NSObject {
 @public
  char *text;
}
@end
@implementation NSString
- (id)initWithBytes:(const void *)bytes length:(uint64_t)length encoding:(uint64_t)encoding {
  CHECK(encoding == 4, "encoding %lu", encoding);
  text = strndup(bytes, length);
  return self;
}
- (const char *)UTF8String {
  return text;
}
@end
static NSString *MakeString(const char *text) {
  return [[NSString alloc] initWithBytes:text length:strlen(text) encoding:4];
}

@interface NSError : NSObject {
 @public
  const char *text;
  int64_t code;
}
@end
@implementation NSError
- (id)localizedDescription {
  return Autorelease(MakeString(text));
}
- (id)domain {
  return Autorelease(MakeString("FakeDomain"));
}
- (int64_t)code {
  return code;
}
@end
static id MakeError(const char *text, int64_t code) {
  NSError *error = [NSError alloc];
  error->text = text;
  error->code = code;
  return Autorelease(error);
}

@interface NSProcessInfo : NSObject
@end
@implementation NSProcessInfo
+ (id)processInfo {
  return Autorelease([NSProcessInfo alloc]);
}
- (OsVersion)operatingSystemVersion {
  return (OsVersion){macos_major, 2, 1};
}
@end

@interface NSArray : NSObject {
 @public
  id only;
}
@end
@implementation NSArray
- (uint64_t)count {
  return 1;
}
- (id)objectAtIndex:(uint64_t)index {
  CHECK(index == 0, "index %lu of an array of 1", index);
  return only;
}
- (void)dealloc {
  [only release];
  [super dealloc];
}
@end

// --- Metal: resources ---

@interface MTLBuffer : NSObject {
 @public
  char *bytes;
  uint64_t length;
  bool owned;
}
@end
@implementation MTLBuffer
- (void *)contents {
  return bytes;
}
- (void)dealloc {
  if (owned) free(bytes);
  [super dealloc];
}
@end

@interface MTLFunction : NSObject {
 @public
  int kernel;  // 0: add, 1: byte copy
}
@end
@implementation MTLFunction
@end
@interface MTLComputePipelineState : MTLFunction
@end
@implementation MTLComputePipelineState
- (uint64_t)maxTotalThreadsPerThreadgroup {
  return 512;
}
- (uint64_t)threadExecutionWidth {
  return Fails("width") ? 64 : 32;
}
@end

@interface MTLLibrary : NSObject {
 @public
  char *source;
}
@end
@implementation MTLLibrary
- (id)newFunctionWithName:(NSString *)name {
  CHECK(Alive(name), "function name used after release");
  if (strstr(source, name->text) == NULL) return nil;
  MTLFunction *function = [MTLFunction alloc];
  function->kernel = strcmp(name->text, "k_add") == 0 ? 0 : 1;
  return function;
}
@end

@interface MTLCompileOptions : NSObject {
 @public
  bool safe, precise;
  uint64_t language;
}
@end
@implementation MTLCompileOptions
- (void)setFastMathEnabled:(BOOL)fast {
  safe = precise = !fast;
}
- (void)setMathMode:(int64_t)mode {
  safe = mode == 0;
}
- (void)setMathFloatingPointFunctions:(int64_t)functions {
  precise = functions == 1;
}
- (void)setLanguageVersion:(uint64_t)version {
  language = version;
}
@end

// --- Metal: commands ---

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

@implementation MTLCommandEncoder
- (void)endEncoding {
  CHECK(!ended && owner->open == self, "endEncoding of an encoder that is not open");
  ended = true;
  owner->open = nil;
}
- (Command *)add {
  CHECK(!ended && owner->status == 0, "a command after endEncoding or commit");
  return &owner->commands[owner->count++];
}
- (void)dealloc {
  CHECK(ended, "encoder released without endEncoding");
  [super dealloc];
}
@end

@interface MTLComputeCommandEncoder : MTLCommandEncoder {
 @public
  Command now;
  MTLComputePipelineState *state;
}
@end
@implementation MTLComputeCommandEncoder
- (void)setComputePipelineState:(MTLComputePipelineState *)new_state {
  state = new_state;
}
- (void)setBuffer:(MTLBuffer *)buffer offset:(uint64_t)offset atIndex:(uint64_t)index {
  CHECK(index < 31 && buffer != nil && offset < buffer->length, "setBuffer out of bounds");
  CHECK(Alive(buffer), "setBuffer of a released buffer");
  if (index == 3) {
    now.scale = *(float *)buffer->bytes;
    return;
  }
  now.buffers[index] = buffer;
  now.offsets[index] = offset;
}
- (void)setBytes:(const void *)bytes length:(uint64_t)length atIndex:(uint64_t)index {
  CHECK(index == 3 && length > 0 && length <= 4096, "setBytes of %lu bytes at %lu", length, index);
  memcpy(&now.scale, bytes, sizeof now.scale);
}
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group {
  const uint64_t total = group.width * group.height * group.depth;
  CHECK(state != nil, "dispatch without a pipeline");
  CHECK(total > 0 && total <= 512, "threadgroup of %lu", total);
  CHECK(threads.height == 1 && threads.depth == 1, "grid not as sent");
  now.kernel = state->kernel;
  now.count = threads.width;
  *[self add] = now;
  for (int i = 0; i < 3; ++i) [now.buffers[i] retain];
}
@end

@interface MTLBlitCommandEncoder : MTLCommandEncoder
@end
@implementation MTLBlitCommandEncoder
- (void)copyFromBuffer:(MTLBuffer *)source
          sourceOffset:(uint64_t)from
              toBuffer:(MTLBuffer *)destination
     destinationOffset:(uint64_t)to
                  size:(uint64_t)size {
  CHECK((from | to | size) % 4 == 0, "blit not a multiple of 4");
  CHECK(from + size <= source->length && to + size <= destination->length, "blit out of bounds");
  *[self add] = (Command){2, {[source retain], [destination retain], nil}, {from, to, 0}, 0, size};
}
@end

static void Run(const Command *command) {
  char *at[3] = {0};
  for (int i = 0; i < 3; ++i) {
    if (command->buffers[i] == nil) continue;
    CHECK(Alive(command->buffers[i]), "kernel reads a released buffer");
    at[i] = command->buffers[i]->bytes + command->offsets[i];
  }
  for (uint64_t i = 0; i < command->count; ++i) {
    if (command->kernel == 0) {
      ((float *)at[2])[i] = ((float *)at[0])[i] + command->scale * ((float *)at[1])[i];
    } else {
      at[1][i] = at[0][i];
    }
  }
}

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static MTLCommandBuffer *committed;  // in order

static void Complete(MTLCommandBuffer *buffer) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  if (Fails("run")) buffer->error = [MakeError("out of GPU memory", 8) retain];
  pthread_mutex_lock(&lock);
  buffer->status = buffer->error != nil ? 5 : 4;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  if (buffer->handler != NULL) buffer->handler->invoke(buffer->handler, buffer);
  [pool release];
  [buffer release];
}

// The GPU: runs command buffers in order; "reorder" completes every second one before the first.
static void *Gpu(void *unused) {
  (void)unused;
  MTLCommandBuffer *held = nil;
  while (true) {
    pthread_mutex_lock(&lock);
    while (committed == nil) pthread_cond_wait(&changed, &lock);
    MTLCommandBuffer *buffer = committed;
    committed = buffer->next;
    pthread_mutex_unlock(&lock);
    usleep(2000);
    for (int i = 0; i < buffer->count; ++i) Run(&buffer->commands[i]);
    if (Fails("reorder") && held == nil) {
      held = buffer;
      continue;
    }
    Complete(buffer);
    if (held != nil) Complete(held);
    held = nil;
  }
  return NULL;
}

@implementation MTLCommandBuffer
- (id)open:(Class)type {
  CHECK(open == nil && status == 0, "an encoder while another is open, or after commit");
  MTLCommandEncoder *encoder = [type alloc];
  encoder->owner = self;
  open = encoder;
  return Autorelease(encoder);
}
- (id)computeCommandEncoderWithDispatchType:(uint64_t)type {
  CHECK(type == 0, "dispatch type %lu", type);
  return [self open:objc_getClass("MTLComputeCommandEncoder")];
}
- (id)blitCommandEncoder {
  return [self open:objc_getClass("MTLBlitCommandEncoder")];
}
- (void)addCompletedHandler:(Block *)block {
  CHECK(status == 0 && handler == NULL, "handler after commit");
  CHECK(block->isa == _NSConcreteStackBlock && (block->flags & (1 << 25)) == 0, "not a plain stack block");
  CHECK(strcmp(block->descriptor->signature, "v16@?0@8") == 0, "block's signature");
  handler = malloc(block->descriptor->size);
  memcpy(handler, block, block->descriptor->size);
  memset(block, 0xcc, block->descriptor->size);  // it was the caller's stack
}
- (void)commit {
  CHECK(status == 0 && open == nil, "commit twice, or with an open encoder");
  [self retain];
  pthread_mutex_lock(&lock);
  static bool started;
  pthread_t thread;
  if (!started) pthread_create(&thread, NULL, Gpu, NULL);
  started = true;
  status = 2;
  MTLCommandBuffer **end = &committed;
  while (*end != nil) end = &(*end)->next;
  *end = self;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}
- (void)waitUntilCompleted {
  CHECK(status != 0, "wait before commit");
  pthread_mutex_lock(&lock);
  while (status < 4) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}
- (uint64_t)status {
  return status;
}
- (id)error {
  return error;
}
- (void)dealloc {
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < 3; ++j) [commands[i].buffers[j] release];
  }
  free(handler);
  [error release];
  [super dealloc];
}
@end

@interface MTLCommandQueue : NSObject
@end
@implementation MTLCommandQueue
- (id)commandBuffer {
  return Autorelease([MTLCommandBuffer alloc]);
}
@end

// --- Metal: the device ---

@interface MTLDevice : NSObject
@end
@implementation MTLDevice
- (id)name {
  return Autorelease(MakeString("Apple Fake"));
}
- (BOOL)supportsFamily:(int64_t)family {
  return !Fails("family") && family <= 1008;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return 1ull << 33;
}
- (uint64_t)maxBufferLength {
  return 1ull << 32;
}
- (uint64_t)maxThreadgroupMemoryLength {
  return 32768;
}
- (MTLSize)maxThreadsPerThreadgroup {
  return (MTLSize){1024, 1024, 1024};
}
- (id)newCommandQueue {
  return [MTLCommandQueue alloc];
}
- (id)newBufferWithLength:(uint64_t)length options:(uint64_t)options {
  CHECK(options == 0 && length > 0 && length <= 1ull << 32, "buffer of %lu bytes", length);
  if (Fails("allocate")) return nil;
  MTLBuffer *buffer = [MTLBuffer alloc];
  buffer->bytes = aligned_alloc(16384, (length + 16383) / 16384 * 16384);
  buffer->length = length;
  buffer->owned = true;
  return buffer;
}
- (id)newBufferWithBytes:(const void *)bytes length:(uint64_t)length options:(uint64_t)options {
  MTLBuffer *buffer = [self newBufferWithLength:length options:options];
  memcpy(buffer->bytes, bytes, length);
  return buffer;
}
- (id)newBufferWithBytesNoCopy:(void *)bytes
                        length:(uint64_t)length
                       options:(uint64_t)options
                   deallocator:(Block *)deallocator {
  const uint64_t page = (uint64_t)getpagesize();
  CHECK((uint64_t)bytes % page == 0 && length % page == 0 && deallocator == NULL && options == 0, "no-copy buffer");
  MTLBuffer *buffer = [MTLBuffer alloc];
  buffer->bytes = bytes;
  buffer->length = length;
  return buffer;
}
- (id)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(id *)error {
  CHECK(options->safe && options->precise, "fast math");
  CHECK(options->language == (macos_major >= 14 ? 0x30001 : 0x30000), "language version");
  if (strstr(source->text, "#error") != NULL) {
    *error = MakeError("program_source:1:2: error: planted", 3);
    return nil;
  }
  *error = MakeError("program_source:1:1: warning: only a warning", 4);
  MTLLibrary *library = [MTLLibrary alloc];
  library->source = source->text;  // strings' text is never freed here
  return library;
}
- (id)newComputePipelineStateWithFunction:(MTLFunction *)function error:(id *)error {
  if (Fails("pipeline")) {
    *error = MakeError("too much threadgroup memory", 2);
    return nil;
  }
  MTLComputePipelineState *state = [MTLComputePipelineState alloc];
  state->kernel = function->kernel;
  return state;
}
@end

id MTLCopyAllDevices(void) {
  NSArray *devices = [NSArray alloc];
  devices->only = [MTLDevice alloc];
  return devices;
}
