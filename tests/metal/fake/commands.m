// Command buffers, encoders, and the thread that is the GPU.
#include "tests/metal/fake/internal.h"

#include <time.h>
#include <unistd.h>

// Metal's limit for one queue; it blocks the thread that asks for one more.
enum { kMaxCommandBuffers = 64 };
static int uncompleted;
static int paused;
static long commits, barriers;
long FakeCommitted(void) { return __atomic_load_n(&commits, __ATOMIC_SEQ_CST); }
long FakeBarriers(void) { return __atomic_load_n(&barriers, __ATOMIC_SEQ_CST); }

@implementation MTLCommandEncoder
- (void)endEncoding {
  CHECK(!ended && owner->open == self, "endEncoding of an encoder that is not open");
  ended = true;
  owner->open = nil;
}
- (void)setLabel:(NSString *)text {
  label = [text retain];
}
- (void)add:(Command)command {
  CHECK(!ended && owner->status == 0, "a command after endEncoding or commit");
  if (!concurrent) ++owner->epoch;
  command.epoch = owner->epoch;
  if ((owner->count & (owner->count + 1)) == 0) {
    owner->commands = realloc(owner->commands, 2 * (owner->count + 1) * sizeof command);
  }
  owner->commands[owner->count++] = command;
}
- (void)dealloc {
  CHECK(ended, "encoder released without endEncoding");
  [label release];
  [super dealloc];
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
  [self add:now];
  for (int i = 0; i < 3; ++i) [now.buffers[i] retain];
}
- (void)memoryBarrierWithScope:(uint64_t)scope {
  CHECK(!ended && concurrent && scope == 1, "barrier of scope %lu", scope);
  __atomic_add_fetch(&barriers, 1, __ATOMIC_SEQ_CST);
  ++owner->epoch;
}
@end

@implementation MTLBlitCommandEncoder
- (void)copyFromBuffer:(MTLBuffer *)source
          sourceOffset:(uint64_t)from
              toBuffer:(MTLBuffer *)destination
     destinationOffset:(uint64_t)to
                  size:(uint64_t)size {
  CHECK((from | to | size) % 4 == 0, "blit not a multiple of 4");
  CHECK(from + size <= source->length && to + size <= destination->length, "blit out of bounds");
  [self add:(Command){2, {[source retain], [destination retain], nil}, {from, to, 0}, 0, size, 0}];
}
@end

static void Run(const Command *command) {
  char *at[3] = {0};
  for (int i = 0; i < 3; ++i) {
    if (command->buffers[i] == nil) continue;
    CHECK(Alive(command->buffers[i]), "kernel reads a released buffer");
    at[i] = command->buffers[i]->bytes + command->offsets[i];
    const bool last = i == (command->kernel == 0 ? 2 : 1);
    HazardsAccess(at[i], command->count * (command->kernel == 0 ? sizeof(float) : 1), last, command);
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
  if (Fails("run")) buffer->error = [MakeError("FakeDomain", 8, "out of GPU memory") retain];
  if (Fails("removed")) buffer->error = [MakeError("FakeDomain", 11, "device removed") retain];
  if (Fails("fault")) buffer->error = [MakeFault(buffer) retain];
  pthread_mutex_lock(&fake_lock);
  buffer->status = buffer->error != nil ? 5 : 4;
  __atomic_sub_fetch(&uncompleted, 1, __ATOMIC_SEQ_CST);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&fake_lock);
  if (buffer->handler != NULL) buffer->handler->invoke(buffer->handler, buffer);
  [pool release];
  [buffer release];
}

void FakePause(int pause) {
  pthread_mutex_lock(&fake_lock);
  paused = pause;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&fake_lock);
}

static double Seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// The GPU: runs command buffers in order; "reorder" completes one before another that came first.
static void *Gpu(void *unused) {
  (void)unused;
  MTLCommandBuffer *held = nil;
  while (true) {
    pthread_mutex_lock(&fake_lock);
    while (committed == nil || paused) pthread_cond_wait(&changed, &fake_lock);
    MTLCommandBuffer *buffer = committed;
    committed = buffer->next;
    pthread_mutex_unlock(&fake_lock);
    buffer->gpu_start = Seconds();
    usleep(2000);
    for (int i = 0; i < buffer->count; ++i) {
      if (i == 0 || buffer->commands[i].epoch != buffer->commands[i - 1].epoch) HazardsClear();
      Run(&buffer->commands[i]);
    }
    buffer->gpu_end = Seconds();
    if (Fails("reorder") && held == nil && committed != nil) {
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
- (id)open:(Class)type concurrent:(bool)concurrent {
  CHECK(open == nil && status == 0, "an encoder while another is open, or after commit");
  if (Fails("encoder")) return nil;
  MTLCommandEncoder *encoder = [type alloc];
  encoder->owner = self;
  encoder->concurrent = concurrent;
  encoder->next = encoders;
  encoders = [encoder retain];
  ++epoch;
  open = encoder;
  return Autorelease(encoder);
}
- (id)computeCommandEncoderWithDispatchType:(uint64_t)type {
  CHECK(type <= 1, "dispatch type %lu", type);
  return [self open:objc_getClass("MTLComputeCommandEncoder") concurrent:type == 1];
}
- (id)blitCommandEncoder {
  return [self open:objc_getClass("MTLBlitCommandEncoder") concurrent:false];
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
  pthread_mutex_lock(&fake_lock);
  static bool started;
  pthread_t thread;
  if (!started) pthread_create(&thread, NULL, Gpu, NULL);
  started = true;
  status = 2;
  __atomic_add_fetch(&commits, 1, __ATOMIC_SEQ_CST);
  MTLCommandBuffer **end = &committed;
  while (*end != nil) end = &(*end)->next;
  *end = self;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&fake_lock);
}
- (uint64_t)status {
  return status;
}
- (id)error {
  return error;
}
- (double)GPUStartTime {
  CHECK(status >= 4, "times of a command buffer that has not completed");
  return gpu_start;
}
- (double)GPUEndTime {
  return gpu_end;
}
- (void)dealloc {
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < 3; ++j) [commands[i].buffers[j] release];
  }
  free(commands);
  if (status == 0) __atomic_sub_fetch(&uncompleted, 1, __ATOMIC_SEQ_CST);
  while (encoders != nil) {
    MTLCommandEncoder *encoder = encoders;
    encoders = encoder->next;
    [encoder release];
  }
  free(handler);
  [error release];
  [super dealloc];
}
@end

@implementation MTLCommandBufferDescriptor
- (void)setErrorOptions:(uint64_t)new_options {
  options = new_options;
}
@end

@implementation MTLCommandQueue
- (id)commandBufferWithDescriptor:(MTLCommandBufferDescriptor *)descriptor {
  CHECK(descriptor->options == 1, "error options %lu", descriptor->options);
  if (Fails("commandBuffer")) return nil;
  CHECK(__atomic_add_fetch(&uncompleted, 1, __ATOMIC_SEQ_CST) <= kMaxCommandBuffers,
        "more than %d command buffers that have not completed", kMaxCommandBuffers);
  return Autorelease([MTLCommandBuffer alloc]);
}
@end
