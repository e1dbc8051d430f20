// MetalPerformanceShadersGraph: the few classes that csrc/metal/mpsgraph.cc uses. A graph is checked as it is built,
// an executable as it is encoded, and run by graph_numerics.m when the GPU comes to it. Inputs are wanted in the
// reverse order of the placeholders, so that a caller that does not ask fails.
#include "tests/metal/fake/collections.h"
#include "tests/metal/fake/graph_numerics.h"

#include <signal.h>
#include <unistd.h>

static long encoded;
long FakeGraphCalls(void) { return __atomic_load_n(&encoded, __ATOMIC_SEQ_CST); }

// The shape that an array of numbers gives; of rank 0, and a breach, if it gives none.
static FakeShape Numbers(NSMutableArray *array) {
  FakeShape shape = {0, {0}};
  CHECK(array != nil && Alive(array) && array->count > 0 && array->count <= kFakeMaxRank, "a shape of no numbers");
  for (uint64_t i = 0; array != nil && i < array->count && i < kFakeMaxRank; ++i) {
    shape.dims[shape.rank++] = ((NSNumber *)array->objects[i])->value;
  }
  return shape;
}
static bool Same(const FakeShape *a, const FakeShape *b) {
  return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

// --- What a graph is made of ---

@interface MPSGraphShapedType : NSObject {
 @public
  FakeShape shape;
  uint32_t type;
}
@end
@implementation MPSGraphShapedType
- (id)initWithShape:(id)numbers dataType:(uint32_t)data_type {
  shape = Numbers(numbers);
  type = data_type;
  return self;
}
@end

@interface MPSGraphConvolution2DOpDescriptor : NSObject {
 @public
  FakeWindow window;
}
@end
@implementation MPSGraphConvolution2DOpDescriptor
+ (id)descriptorWithStrideInX:(uint64_t)stride_x
                    strideInY:(uint64_t)stride_y
              dilationRateInX:(uint64_t)dilation_x
              dilationRateInY:(uint64_t)dilation_y
                       groups:(uint64_t)groups
                  paddingLeft:(uint64_t)left
                 paddingRight:(uint64_t)right
                   paddingTop:(uint64_t)top
                paddingBottom:(uint64_t)bottom
                 paddingStyle:(uint64_t)style
                   dataLayout:(uint64_t)data
                weightsLayout:(uint64_t)weights {
  CHECK(style == 0 && data <= 1 && (weights == 2 || weights == 3), "padding style %lu, layouts %lu, %lu", style, data,
        weights);
  CHECK(stride_x > 0 && stride_y > 0 && dilation_x > 0 && dilation_y > 0 && groups > 0, "a step of nothing");
  MPSGraphConvolution2DOpDescriptor *descriptor = [MPSGraphConvolution2DOpDescriptor alloc];
  descriptor->window = (FakeWindow){
      {stride_y, stride_x}, {dilation_y, dilation_x}, {top, left}, {bottom, right}, groups, data == 1, weights == 3};
  return Autorelease(descriptor);
}
@end

typedef enum { kPlaceholder, kTranspose, kReshape, kMatmul, kConvolve } Operation;
@interface MPSGraphTensor : NSObject {
 @public
  Operation operation;
  FakeShape shape;
  uint32_t type;
  MPSGraphTensor *inputs[2];
  FakeShape permutation;
  FakeWindow window;
  FakeConvolution convolution;
}
@end
@implementation MPSGraphTensor
- (void)dealloc {
  [inputs[0] release];
  [inputs[1] release];
  [super dealloc];
}
@end

// The tensor's elements, to be freed; `given`: those of placeholders, in the order of `placeholders`.
static double *Evaluate(MPSGraphTensor *tensor, MPSGraphTensor *const *placeholders, double *const *given) {
  const size_t bytes = (size_t)FakeCount(&tensor->shape) * sizeof(double);
  double *elements = calloc(1, bytes);
  if (tensor->operation == kPlaceholder) {
    memcpy(elements, given[tensor == placeholders[0] ? 0 : 1], bytes);
    return elements;
  }
  double *inputs[2] = {NULL, NULL};
  for (int i = 0; i < 2; ++i) {
    if (tensor->inputs[i] != nil) inputs[i] = Evaluate(tensor->inputs[i], placeholders, given);
  }
  const FakeShape *a = &tensor->inputs[0]->shape;
  const FakeShape *b = tensor->inputs[1] == nil ? NULL : &tensor->inputs[1]->shape;
  const FakeShape *out = &tensor->shape;
  const FakeWindow *window = &tensor->window;
  if (tensor->operation == kTranspose) {
    FakeTranspose(inputs[0], a, tensor->permutation.dims, elements);
  } else if (tensor->operation == kReshape) {
    memcpy(elements, inputs[0], bytes);
  } else if (tensor->operation == kMatmul) {
    FakeMatmul(inputs[0], inputs[1], a, b, elements);
  } else if (tensor->convolution == kFakeForward) {
    FakeConvolve(kFakeForward, window, inputs[0], a, inputs[1], b, elements, out);
  } else if (tensor->convolution == kFakeDataGradient) {
    FakeConvolve(kFakeDataGradient, window, elements, out, inputs[1], b, inputs[0], a);
  } else {
    FakeConvolve(kFakeWeightsGradient, window, inputs[1], b, elements, out, inputs[0], a);
  }
  free(inputs[0]);
  free(inputs[1]);
  return elements;
}

@interface MPSGraphDevice : NSObject {
 @public
  MTLDevice *device;
}
@end
@implementation MPSGraphDevice
+ (id)deviceWithMTLDevice:(MTLDevice *)device {
  CHECK(device != nil && Alive(device), "MPSGraph on no device");
  MPSGraphDevice *made = [MPSGraphDevice alloc];
  made->device = [device retain];
  return Autorelease(made);
}
- (void)dealloc {
  [device release];
  [super dealloc];
}
@end

@interface MPSGraphCompilationDescriptor : NSObject {
 @public
  bool level_0;
}
@end
@implementation MPSGraphCompilationDescriptor
- (void)setOptimizationLevel:(uint64_t)level {
  level_0 = level == 0;
}
@end

// --- Data ---

@interface MPSNDArrayDescriptor : MPSGraphShapedType {
 @public
  bool packed;
}
@end
@implementation MPSNDArrayDescriptor
+ (id)descriptorWithDataType:(uint32_t)type shape:(id)shape {
  MPSNDArrayDescriptor *descriptor = [MPSNDArrayDescriptor alloc];
  descriptor->shape = Numbers(shape);
  descriptor->type = type;
  return Autorelease(descriptor);
}
- (BOOL)respondsToSelector:(SEL)selector {
  return MacosMajor() >= 15 && [super respondsToSelector:selector];
}
- (void)setPreferPackedRows:(BOOL)prefer {
  packed = prefer;
}
@end

@interface MPSGraphTensorData : MPSGraphShapedType {
 @public
  MTLBuffer *buffer;
  uint64_t offset;
}
@end
@interface MPSNDArray : MPSGraphTensorData
@end
@implementation MPSNDArray
- (BOOL)respondsToSelector:(SEL)selector {
  return MacosMajor() >= 15 && [super respondsToSelector:selector];
}
- (id)initWithBuffer:(MTLBuffer *)from offset:(uint64_t)at descriptor:(MPSNDArrayDescriptor *)descriptor {
  CHECK(from != nil && Alive(from), "MPSNDArray on no buffer");
  CHECK(descriptor->packed, "rows of an MPSNDArray are padded unless asked not to be");
  buffer = [from retain];
  offset = at;
  shape = descriptor->shape;
  type = descriptor->type;
  return self;
}
@end
@implementation MPSGraphTensorData
- (id)initWithMTLBuffer:(MTLBuffer *)from shape:(id)numbers dataType:(uint32_t)data_type {
  CHECK(from != nil && Alive(from), "MPSGraphTensorData on no buffer");
  buffer = [from retain];
  shape = Numbers(numbers);
  type = data_type;
  return self;
}
- (id)initWithMPSNDArray:(MPSNDArray *)array {
  CHECK(array != nil && Alive(array), "MPSGraphTensorData of no array");
  buffer = [array->buffer retain];
  offset = array->offset;
  shape = array->shape;
  type = array->type;
  return self;
}
- (uint64_t)bytes {
  return (uint64_t)FakeCount(&shape) * (uint64_t)FakeElementBytes(type);
}
- (void)dealloc {
  [buffer release];
  [super dealloc];
}
@end

@interface MTLCommandBuffer (Used)
- (id)computeCommandEncoderWithDispatchType:(uint64_t)type;
- (void)commit;
@end
@interface MPSCommandBuffer : NSObject {
 @public
  MTLCommandBuffer *current;
}
@end
@implementation MPSCommandBuffer
+ (id)commandBufferWithCommandBuffer:(MTLCommandBuffer *)buffer {
  CHECK(buffer != nil && Alive(buffer) && buffer->status == kNotEnqueued, "MPSCommandBuffer of a committed one");
  MPSCommandBuffer *made = [MPSCommandBuffer alloc];
  made->current = [buffer retain];
  return Autorelease(made);
}
- (id)rootCommandBuffer {
  return current;
}
- (void)commitAndContinue {
  TakePlace(current->queue);
  MTLCommandBuffer *next = [MTLCommandBuffer alloc];
  next->queue = [current->queue retain];
  [current commit];
  [current release];
  current = next;
}
- (void)dealloc {
  [current release];
  [super dealloc];
}
@end

// --- Execution ---

@interface FakeGraphRun : FakeCommand {
 @public
  MPSGraphTensor *target, *placeholders[2];
  MPSGraphTensorData *data[3];  // of the placeholders, and the result
}
@end
@implementation FakeGraphRun
- (void)runIn:(MTLCommandBuffer *)buffer {
  (void)buffer;
  double *given[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t count = FakeCount(&data[i]->shape);
    given[i] = malloc((size_t)count * sizeof(double));
    FakeDecode(data[i]->buffer->bytes + data[i]->offset, data[i]->type, count, given[i]);
  }
  double *result = Evaluate(target, placeholders, given);
  FakeEncode(result, target->type, FakeCount(&target->shape), data[2]->buffer->bytes + data[2]->offset);
  free(result);
  free(given[0]);
  free(given[1]);
}
- (void)dealloc {
  [target release];
  for (int i = 0; i < 2; ++i) [placeholders[i] release];
  for (int i = 0; i < 3; ++i) [data[i] release];
  [super dealloc];
}
@end

@interface MPSGraphExecutableExecutionDescriptor : NSObject {
 @public
  Block *handler;
}
@end
@implementation MPSGraphExecutableExecutionDescriptor
- (void)setCompletionHandler:(Block *)block {
  CHECK(block->isa == _NSConcreteStackBlock && (block->flags & (1 << 25)) == 0, "not a plain stack block");
  CHECK(strcmp(block->descriptor->signature, "v24@?0@8@16") == 0, "block's signature");
  handler = malloc(block->descriptor->size);
  memcpy(handler, block, block->descriptor->size);
  memset(block, 0xcc, block->descriptor->size);  // it was the caller's stack
}
- (void)dealloc {
  free(handler);
  [super dealloc];
}
@end

@interface MPSGraphExecutable : NSObject {
 @public
  MPSGraphTensor *target;
  NSMutableArray *feeds;
}
@end
@implementation MPSGraphExecutable
- (id)feedTensors {
  return feeds;
}
- (id)encodeToCommandBuffer:(MPSCommandBuffer *)outer
                inputsArray:(NSMutableArray *)inputs
               resultsArray:(NSMutableArray *)results
        executionDescriptor:(MPSGraphExecutableExecutionDescriptor *)descriptor {
  if (Fails("assert")) abort();
  if (Fails("kill")) kill(getpid(), SIGKILL);
  CHECK(descriptor != nil && descriptor->handler != NULL, "nobody is to be told of MPSGraph's own errors");
  CHECK(outer->current->status == kNotEnqueued, "MPSGraph encodes into a committed command buffer");
  CHECK(outer->current->open == nil, "MPSGraph encodes while an encoder is open");
  CHECK(inputs->count == 2 && results->count == 1, "%lu inputs and %lu results", inputs->count, results->count);
  if (inputs->count != 2 || results->count != 1 || outer->current->status != kNotEnqueued) return nil;
  FakeGraphRun *run = [FakeGraphRun alloc];
  run->target = [target retain];
  for (int i = 0; i < 3; ++i) {
    MPSGraphTensorData *data = run->data[i] = [(i < 2 ? inputs->objects[i] : results->objects[0]) retain];
    MPSGraphTensor *tensor = i < 2 ? feeds->objects[i] : target;
    if (i < 2) run->placeholders[i] = [tensor retain];
    CHECK(Same(&data->shape, &tensor->shape) && data->type == tensor->type, "tensor data %d is not its tensor's", i);
    const bool inside = data->offset <= data->buffer->length && [data bytes] <= data->buffer->length - data->offset;
    CHECK(inside, "tensor data %d: %lu bytes at %lu of a buffer of %lu", i, [data bytes], data -> offset,
          data -> buffer -> length);
    // Nobody tells MPSGraph of fences.
    CHECK((data->buffer->options & (1 << 8)) == 0, "tensor data %d is on a buffer without hazard tracking", i);
    if (i == 2) break;
    MPSGraphTensorData *result = results->objects[0];
    CHECK(data->buffer != result->buffer || data->offset + [data bytes] <= result->offset ||
              result->offset + [result bytes] <= data->offset,
          "the result is written over input %d", i);
  }
  const bool lose_own = Fails("loseOwn");
  if (lose_own) [outer commitAndContinue];
  if (descriptor != nil && descriptor->handler != NULL) {
    struct GraphHandler *told = malloc(sizeof *told);
    *told = (struct GraphHandler){descriptor->handler, outer->current->graph_handlers};
    outer->current->graph_handlers = told;
    descriptor->handler = NULL;
  }
  MTLCommandEncoder *own = [outer->current computeCommandEncoderWithDispatchType:0];
  [own add:run];
  [own endEncoding];
  const bool lose = Fails("lose");
  if (lose || lose_own) FailCommandBuffer(outer->current, 8, "out of GPU memory in MPSGraph's");
  if (lose || lose_own || Fails("continue")) [outer commitAndContinue];
  __atomic_add_fetch(&encoded, 1, __ATOMIC_SEQ_CST);
  return results;
}
- (void)dealloc {
  [target release];
  [feeds release];
  [super dealloc];
}
@end

// --- Graphs ---

@interface MPSGraph : NSObject {
 @public
  NSMutableArray *tensors;
}
@end
@implementation MPSGraph
- (id)init {
  tensors = [NSMutableArray alloc];
  return self;
}
- (void)dealloc {
  [tensors release];
  [super dealloc];
}
- (bool)has:(MPSGraphTensor *)tensor {
  for (uint64_t i = 0; i < tensors->count; ++i) {
    if (tensors->objects[i] == tensor) return true;
  }
  return false;
}
- (MPSGraphTensor *)add:(Operation)operation
                  shape:(const FakeShape *)shape
                     of:(MPSGraphTensor *)a
                    and:(MPSGraphTensor *)b {
  MPSGraphTensor *tensor = Autorelease([MPSGraphTensor alloc]);
  CHECK([self has:a] && (b == nil || [self has:b]), "a tensor of another graph");
  CHECK(b == nil || b->type == a->type, "operands of types 0x%x and 0x%x", a->type, b->type);
  tensor->operation = operation;
  tensor->shape = *shape;
  tensor->type = a->type;
  tensor->inputs[0] = [a retain];
  tensor->inputs[1] = [b retain];
  [tensors addObject:tensor];
  return tensor;
}
- (id)placeholderWithShape:(id)numbers dataType:(uint32_t)type name:(id)name {
  CHECK(name == nil, "a name");
  CHECK(FakeElementBytes(type) > 0 && (type != kFakeBfloat16 || MacosMajor() >= 14), "data type 0x%x", type);
  MPSGraphTensor *tensor = Autorelease([MPSGraphTensor alloc]);
  tensor->shape = Numbers(numbers);
  tensor->type = type;
  [tensors addObject:tensor];
  return tensor;
}
- (id)transposeTensor:(MPSGraphTensor *)tensor permutation:(id)numbers name:(id)name {
  CHECK(name == nil, "a name");
  const FakeShape permutation = Numbers(numbers);
  FakeShape shape = {tensor->shape.rank, {0}};
  bool valid = permutation.rank == shape.rank;
  for (int i = 0; valid && i < shape.rank; ++i) {
    valid = permutation.dims[i] >= 0 && permutation.dims[i] < shape.rank;
    for (int j = 0; valid && j < i; ++j) valid = permutation.dims[i] != permutation.dims[j];
    if (valid) shape.dims[i] = tensor->shape.dims[permutation.dims[i]];
  }
  CHECK(valid, "a permutation that is none");
  if (!valid) return nil;
  MPSGraphTensor *made = [self add:kTranspose shape:&shape of:tensor and:nil];
  made->permutation = permutation;
  return made;
}
- (id)reshapeTensor:(MPSGraphTensor *)tensor withShape:(id)numbers name:(id)name {
  CHECK(name == nil, "a name");
  const FakeShape shape = Numbers(numbers);
  CHECK(FakeCount(&shape) == FakeCount(&tensor->shape), "a reshape to another size");
  return FakeCount(&shape) == FakeCount(&tensor->shape) ? [self add:kReshape shape:&shape of:tensor and:nil] : nil;
}
- (id)matrixMultiplicationWithPrimaryTensor:(MPSGraphTensor *)a secondaryTensor:(MPSGraphTensor *)b name:(id)name {
  CHECK(name == nil, "a name");
  const int64_t *p = a->shape.dims, *q = b->shape.dims;
  const bool fits = a->shape.rank == 3 && b->shape.rank == 3 && p[0] == q[0] && p[2] == q[1];
  CHECK(fits, "matrices that do not fit");
  const FakeShape shape = {3, {p[0], p[1], q[2]}};
  return fits ? [self add:kMatmul shape:&shape of:a and:b] : nil;
}
- (id)convolve:(FakeConvolution)which
         shape:(const FakeShape *)shape
            of:(MPSGraphTensor *)a
           and:(MPSGraphTensor *)b
    descriptor:(MPSGraphConvolution2DOpDescriptor *)descriptor {
  const FakeShape *source = which == kFakeForward ? &a->shape : which == kFakeDataGradient ? shape : &b->shape;
  const FakeShape *weights = which == kFakeWeightsGradient ? shape : &b->shape;
  const FakeShape *result = which == kFakeForward ? shape : &a->shape;
  const bool fits = FakeFits(&descriptor->window, source, weights, result);
  CHECK(fits, "a convolution whose arrays do not fit");
  if (!fits) return nil;
  MPSGraphTensor *made = [self add:kConvolve shape:shape of:a and:b];
  made->convolution = which;
  made->window = descriptor->window;
  return made;
}
- (id)convolution2DWithSourceTensor:(MPSGraphTensor *)source
                      weightsTensor:(MPSGraphTensor *)weights
                         descriptor:(MPSGraphConvolution2DOpDescriptor *)descriptor
                               name:(id)name {
  CHECK(name == nil, "a name");
  const FakeWindow *window = &descriptor->window;
  const int features = window->nhwc ? 3 : 1, height = window->nhwc ? 1 : 2;
  FakeShape shape = source->shape;
  shape.dims[features] = weights->shape.dims[window->hwio ? 3 : 0];
  for (int i = 0; i < 2; ++i) {
    const int64_t kernel = weights->shape.dims[(window->hwio ? 0 : 2) + i];
    const int64_t padded = shape.dims[height + i] + (int64_t)(window->low[i] + window->high[i]);
    const int64_t left = padded - (kernel - 1) * (int64_t)window->dilation[i] - 1;
    shape.dims[height + i] = left / (int64_t)window->stride[i] + 1;
  }
  return [self convolve:kFakeForward shape:&shape of:source and:weights descriptor:descriptor];
}
- (id)convolution2DDataGradientWithIncomingGradientTensor:(MPSGraphTensor *)gradient
                                            weightsTensor:(MPSGraphTensor *)weights
                                              outputShape:(id)numbers
                             forwardConvolutionDescriptor:(MPSGraphConvolution2DOpDescriptor *)descriptor
                                                     name:(id)name {
  CHECK(name == nil, "a name");
  const FakeShape shape = Numbers(numbers);
  return [self convolve:kFakeDataGradient shape:&shape of:gradient and:weights descriptor:descriptor];
}
- (id)convolution2DWeightsGradientWithIncomingGradientTensor:(MPSGraphTensor *)gradient
                                                sourceTensor:(MPSGraphTensor *)source
                                                 outputShape:(id)numbers
                                forwardConvolutionDescriptor:(MPSGraphConvolution2DOpDescriptor *)descriptor
                                                        name:(id)name {
  CHECK(name == nil, "a name");
  const FakeShape shape = Numbers(numbers);
  return [self convolve:kFakeWeightsGradient shape:&shape of:gradient and:source descriptor:descriptor];
}
- (id)compileWithDevice:(MPSGraphDevice *)device
                    feeds:(NSMutableDictionary *)feeds
            targetTensors:(NSMutableArray *)targets
         targetOperations:(id)operations
    compilationDescriptor:(MPSGraphCompilationDescriptor *)descriptor {
  CHECK(device != nil && operations == nil, "no device, or operations");
  CHECK(descriptor != nil && descriptor->level_0, "an optimization level that may leave the GPU");
  CHECK(feeds->keys->count == 2 && targets->count == 1 && [self has:targets->objects[0]], "feeds and targets");
  if (Fails("graph") || feeds->keys->count != 2 || targets->count != 1) return nil;
  MPSGraphExecutable *executable = Autorelease([MPSGraphExecutable alloc]);
  executable->target = [targets->objects[0] retain];
  executable->feeds = [NSMutableArray alloc];
  for (int i = 1; i >= 0; --i) {
    MPSGraphTensor *placeholder = feeds->keys->objects[i];
    const MPSGraphShapedType *type = feeds->values->objects[i];
    CHECK([self has:placeholder] && placeholder->operation == kPlaceholder, "a feed that is no placeholder of this");
    CHECK(Same(&type->shape, &placeholder->shape) && type->type == placeholder->type, "a feed of another type");
    [executable->feeds addObject:placeholder];
  }
  return executable;
}
@end
