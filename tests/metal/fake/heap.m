// Placement heaps, and how much memory is in use.
#include "tests/metal/fake/internal.h"

typedef struct {
  uint64_t size, align;
} MTLSizeAndAlign;

// MTLResourceOptions of a heap's buffer: tracked, shared.
static const uint64_t kTrackedShared = 2 << 8;
static const uint64_t kPage = 16384;
static const uint64_t kPlacement = 256;

static int64_t in_heaps, elsewhere;
void FakeUseElsewhere(long bytes) { elsewhere = bytes; }
long FakeInHeaps(void) { return __atomic_load_n(&in_heaps, __ATOMIC_SEQ_CST); }

@interface MTLHeapDescriptor : NSObject {
 @public
  uint64_t size, storage, tracking;
  int64_t type;
}
@end
@implementation MTLHeapDescriptor
- (id)init {
  storage = 2;  // private
  return self;
}
- (void)setSize:(uint64_t)bytes {
  size = bytes;
}
- (void)setStorageMode:(uint64_t)mode {
  storage = mode;
}
- (void)setHazardTrackingMode:(uint64_t)mode {
  tracking = mode;
}
- (void)setType:(int64_t)kind {
  type = kind;
}
@end

@interface MTLHeap : NSObject {
 @public
  id device;
  char *bytes;
  uint64_t size;
}
- (uint64_t)size;
@end

@interface FakeHeapBuffer : MTLBuffer {
 @public
  MTLHeap *heap;
}
@end
@implementation FakeHeapBuffer
- (void)dealloc {
  [heap release];
  [super dealloc];
}
@end

@implementation MTLHeap
- (id)device {
  return device;
}
- (uint64_t)size {
  return size;
}
- (id)newBufferWithLength:(uint64_t)length options:(uint64_t)options offset:(uint64_t)offset {
  CHECK(options == kTrackedShared, "options 0x%lx of a buffer on a tracked, shared heap", options);
  CHECK(offset % kPlacement == 0, "buffer placed at %lu", offset);
  CHECK(length > 0 && offset <= size && length <= size - offset, "%lu bytes at %lu of a heap of %lu", length, offset,
        size);
  FakeHeapBuffer *buffer = [FakeHeapBuffer alloc];
  buffer->heap = [self retain];
  buffer->bytes = bytes + offset;
  buffer->length = length;
  return buffer;
}
- (void)dealloc {
  free(bytes);
  __atomic_sub_fetch(&in_heaps, (int64_t)size, __ATOMIC_SEQ_CST);
  [super dealloc];
}
@end

@implementation MTLDevice (Heap)
- (uint64_t)currentAllocatedSize {
  return (uint64_t)(FakeInHeaps() + elsewhere);
}
- (MTLSizeAndAlign)heapBufferSizeAndAlignWithLength:(uint64_t)length options:(uint64_t)options {
  CHECK(options == kTrackedShared, "options 0x%lx of a buffer on a tracked, shared heap", options);
  return (MTLSizeAndAlign){(length + kPlacement - 1) / kPlacement * kPlacement, kPlacement};
}
- (id)newHeapWithDescriptor:(MTLHeapDescriptor *)descriptor {
  CHECK(descriptor->type == 1, "placement needs a placement heap");
  CHECK(descriptor->storage == 0, "heap of storage mode %lu", descriptor->storage);
  CHECK(descriptor->tracking == 2, "heap's hazards are not tracked");
  CHECK(descriptor->size > 0, "heap of no bytes");
  if (Fails("allocate") || Fails("heap")) return nil;
  MTLHeap *heap = [MTLHeap alloc];
  heap->device = self;
  heap->size = (descriptor->size + kPage - 1) / kPage * kPage;
  heap->bytes = aligned_alloc(kPage, heap->size);
  memset(heap->bytes, 0xff, heap->size);  // what nobody wrote is no number, and shows
  __atomic_add_fetch(&in_heaps, (int64_t)heap->size, __ATOMIC_SEQ_CST);
  return heap;
}
@end
