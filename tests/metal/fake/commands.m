// Command buffers and encoders: what is recorded, and when that is allowed.
#include <stdio.h>

#include "tests/metal/fake/internal.h"

static const uint64_t kMaxInlineBytes = 4096;

static long barriers;
long FakeBarriers(void) { return __atomic_load_n(&barriers, __ATOMIC_SEQ_CST); }

void FailCommandBuffer(MTLCommandBuffer *buffer, int64_t code, const char *text) {
  if (buffer->error != nil) return;
  buffer->error = [MakeError("MTLCommandBufferErrorDomain", code, text) retain];
  buffer->error->details = MakeEncoderDetails(buffer);
}

@implementation FakeCommand
- (void)runIn:(MTLCommandBuffer *)buffer {
  (void)buffer;
}
@end

// --- Encoders ---

@implementation MTLCommandEncoder
- (void)endEncoding {
  CHECK(!ended && owner->open == self, "endEncoding of an encoder that is not open");
  ended = true;
  owner->open = nil;
}
- (void)setLabel:(NSString *)label {
  CHECK(info->label == nil, "an encoder labelled twice");
  info->label = [label retain];
}
- (void)add:(FakeCommand *)command {
  command->encoder = info;
  command->after_barrier = !concurrent || after_barrier;
  after_barrier = false;
  CHECK(!ended && owner->status == kNotEnqueued, "a command after endEncoding or commit");
  if (owner->status != kNotEnqueued) {
    [command release];
    return;
  }
  owner->commands = realloc(owner->commands, (owner->count + 1) * sizeof *owner->commands);
  owner->commands[owner->count++] = command;
}
- (void)dealloc {
  CHECK(ended, "encoder released without endEncoding");
  [owner release];
  [super dealloc];
}
@end

// Bytes given with setBytes.
@interface FakeBytes : NSObject {
 @public
  char *bytes;
}
@end
@implementation FakeBytes
- (void)dealloc {
  free(bytes);
  [super dealloc];
}
@end

static long dispatches;
static long dispatched_threads, opened;
long FakeThreads(void) { return __atomic_load_n(&dispatched_threads, __ATOMIC_SEQ_CST); }
long FakeEncoders(void) { return __atomic_load_n(&opened, __ATOMIC_SEQ_CST); }
long FakeDispatches(void) { return __atomic_load_n(&dispatches, __ATOMIC_SEQ_CST); }

@interface FakeDispatch : FakeCommand {
 @public
  MTLComputePipelineState *state;
  Bound bound[kFakeMaxBuffers];
  uint32_t threads[3], per_threadgroup[3];
}
@end
@implementation FakeDispatch
- (void)runIn:(MTLCommandBuffer *)buffer {
  FakeSpan spans[kFakeMaxBuffers];
  for (int i = 0; i < kFakeMaxBuffers; ++i) {
    spans[i] = bound[i].span;
    if (bound[i].owner == nil || Alive(bound[i].owner)) continue;
    Violation("%s: buffer %d was released before the GPU read it", FakeKernelName(state->kernel), i);
    FailCommandBuffer(buffer, 9, "Invalid Resource (00000009:kIOGPUCommandBufferCallbackErrorInvalidResource)");
    return;
  }
  __atomic_add_fetch(&dispatches, 1, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&dispatched_threads, (long)threads[0] * threads[1] * threads[2], __ATOMIC_SEQ_CST);
  char *wrong = FakeRunKernel(state->kernel, spans, threads, per_threadgroup);
  if (wrong == NULL) return;
  Violation("%s", wrong);
  FailCommandBuffer(buffer, 1, wrong);
  free(wrong);
}
- (void)dealloc {
  for (int i = 0; i < kFakeMaxBuffers; ++i) {
    if (bound[i].owner != nil && Alive(bound[i].owner)) [bound[i].owner release];
  }
  [state release];
  [super dealloc];
}
@end

@implementation MTLComputeCommandEncoder
- (void)setComputePipelineState:(MTLComputePipelineState *)new_state {
  CHECK(!ended, "setComputePipelineState after endEncoding");
  CHECK(new_state != nil && Alive(new_state), "setComputePipelineState of no pipeline, or a released one");
  [new_state retain];
  [state release];
  state = new_state;
}
- (void)bind:(Bound)new_bound at:(uint64_t)index {
  CHECK(!ended, "a buffer is bound after endEncoding");
  CHECK(index < kFakeMaxBuffers, "buffer index %lu, above 30", index);
  if (index >= kFakeMaxBuffers) return;
  [new_bound.owner retain];
  [bound[index].owner release];
  bound[index] = new_bound;
}
- (void)setBuffer:(MTLBuffer *)buffer offset:(uint64_t)offset atIndex:(uint64_t)index {
  if (buffer == nil) return [self bind:(Bound){nil, {NULL, 0}, 0} at:index];
  CHECK(Alive(buffer), "setBuffer of a released buffer");
  if (!Alive(buffer)) return;
  CHECK(offset < buffer->length, "setBuffer at offset %lu of %lu bytes", offset, buffer->length);
  if (offset >= buffer->length) return;
  [self bind:(Bound){buffer, {buffer->bytes + offset, buffer->length - offset}, offset} at:index];
}
- (void)setBufferOffset:(uint64_t)offset atIndex:(uint64_t)index {
  const bool set = index < kFakeMaxBuffers && bound[index].owner != nil &&
                   strcmp(object_getClassName(bound[index].owner), "MTLBuffer") == 0;
  CHECK(set, "an offset for index %lu, where no buffer is", index);
  if (set) [self setBuffer:(MTLBuffer *)bound[index].owner offset:offset atIndex:index];
}
- (void)setBytes:(const void *)bytes length:(uint64_t)length atIndex:(uint64_t)index {
  CHECK(length > 0 && length <= kMaxInlineBytes, "setBytes of %lu bytes", length);
  FakeBytes *copy = [FakeBytes alloc];
  copy->bytes = aligned_alloc(256, (length + 255) / 256 * 256);
  memcpy(copy->bytes, bytes, length);
  [self bind:(Bound){copy, {copy->bytes, length}, 0} at:index];
  [copy release];
}
- (void)memoryBarrierWithScope:(uint64_t)scope {
  CHECK(!ended && scope == 1, "a barrier of scope %lu, or after endEncoding", scope);
  __atomic_add_fetch(&barriers, 1, __ATOMIC_SEQ_CST);
  after_barrier = true;
}
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group {
  CHECK(state != nil, "dispatch without a pipeline");
  if (state == nil) return;
  const char *name = FakeKernelName(state->kernel);
  const uint64_t limit = [state maxTotalThreadsPerThreadgroup];
  const uint64_t sizes[] = {threads.width, threads.height, threads.depth, group.width, group.height, group.depth};
  bool valid = true;
  for (int i = 0; i < 6; ++i) valid = valid && sizes[i] > 0 && sizes[i] <= (i < 3 ? UINT32_MAX : limit);
  valid = valid && group.width * group.height * group.depth <= limit;
  CHECK(valid, "%s: %lux%lux%lu threads by %lux%lux%lu; its pipeline allows 1 to %lu in a threadgroup", name,
        threads.width, threads.height, threads.depth, group.width, group.height, group.depth, limit);
  for (uint32_t i = 0; i < kFakeMaxBuffers; ++i) {
    char *wrong = FakeCheckBuffer(state->kernel, i, &bound[i].span, bound[i].offset);
    CHECK(wrong == NULL, "%s", wrong);
    valid = valid && wrong == NULL;
    free(wrong);
  }
  if (!valid) return;
  FakeDispatch *dispatch = [FakeDispatch alloc];
  dispatch->state = [state retain];
  memcpy(dispatch->bound, bound, sizeof bound);
  for (int i = 0; i < kFakeMaxBuffers; ++i) [bound[i].owner retain];
  for (int i = 0; i < 3; ++i) dispatch->threads[i] = (uint32_t)sizes[i];
  for (int i = 0; i < 3; ++i) dispatch->per_threadgroup[i] = (uint32_t)sizes[3 + i];
  [self add:dispatch];
}
- (void)dealloc {
  for (int i = 0; i < kFakeMaxBuffers; ++i) [bound[i].owner release];
  [state release];
  [super dealloc];
}
@end

// --- Command buffers ---

@implementation MTLCommandBuffer
- (id)open:(Class)type concurrent:(bool)concurrent {
  CHECK(open == nil && status == kNotEnqueued, "an encoder while another is open, or after commit");
  if (Fails("encoder")) return nil;
  __atomic_add_fetch(&opened, 1, __ATOMIC_SEQ_CST);
  MTLCommandEncoder *encoder = [type alloc];
  encoder->owner = [self retain];
  encoder->concurrent = concurrent;
  encoder->after_barrier = true;  // encoders wait for one another where their resources need it
  encoder->info = [MTLCommandBufferEncoderInfo alloc];
  encoders = realloc(encoders, (encoder_count + 1) * sizeof *encoders);
  encoders[encoder_count++] = encoder->info;
  open = encoder;
  return Autorelease(encoder);
}
- (id)computeCommandEncoderWithDispatchType:(uint64_t)type {
  CHECK(type <= 1, "dispatch type %lu", type);
  return [self open:objc_getClass("MTLComputeCommandEncoder") concurrent:type == 1];
}
- (void)addCompletedHandler:(Block *)block {
  CHECK(status == kNotEnqueued && handler == NULL, "a handler after commit, or a second one");
  CHECK(block->isa == _NSConcreteStackBlock && (block->flags & (1 << 25)) == 0, "not a plain stack block");
  CHECK(strcmp(block->descriptor->signature, "v16@?0@8") == 0, "block's signature");
  handler = malloc(block->descriptor->size);
  memcpy(handler, block, block->descriptor->size);
  memset(block, 0xcc, block->descriptor->size);  // it was the caller's stack
}
- (void)commit {
  CHECK(status == kNotEnqueued && open == nil, "commit twice, or with an open encoder");
  if (status == kNotEnqueued) StartCommandBuffer(self);
}
- (uint64_t)status {
  return status;
}
- (id)error {
  return error;
}
- (double)GPUStartTime {
  CHECK(status >= kCompleted, "times of a command buffer that has not completed");
  return gpu_start;
}
- (double)GPUEndTime {
  return gpu_end;
}
- (void)dealloc {
  for (size_t i = 0; i < count; ++i) [commands[i] release];
  free(commands);
  for (size_t i = 0; i < encoder_count; ++i) [encoders[i] release];
  free(encoders);
  free(handler);
  while (graph_handlers != NULL) {
    struct GraphHandler *first = graph_handlers;
    graph_handlers = first->next;
    free(first->block);
    free(first);
  }
  [error release];
  if (status == kNotEnqueued) GiveUpPlace(queue);
  [queue release];
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
  TakePlace(self);
  MTLCommandBuffer *buffer = [MTLCommandBuffer alloc];
  buffer->queue = [self retain];
  return Autorelease(buffer);
}
@end
