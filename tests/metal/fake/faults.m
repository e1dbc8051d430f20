// How Metal tells which encoder failed: a dictionary in the error, with an object for each encoder.
#include "tests/metal/fake/internal.h"

// Metal's name for it is a constant string; here it need only be an object.
static long name;
id MTLCommandBufferEncoderInfoErrorKey = (id)&name;

@implementation NSDictionary
- (id)objectForKey:(id)wanted {
  return wanted == key ? object : nil;
}
- (void)dealloc {
  [object release];
  [super dealloc];
}
@end

@interface EncoderInfo : NSObject {
 @public
  NSString *label;
  int64_t state;
}
@end
@implementation EncoderInfo
- (id)label {
  return label;
}
- (int64_t)errorState {
  return state;
}
- (void)dealloc {
  [label release];
  [super dealloc];
}
@end

@interface EncoderInfos : NSArray {
 @public
  EncoderInfo *infos[64];
  uint64_t count;
}
@end
@implementation EncoderInfos
- (uint64_t)count {
  return count;
}
- (id)objectAtIndex:(uint64_t)index {
  CHECK(index < count, "index %lu of an array of %lu", index, count);
  return infos[index];
}
- (void)dealloc {
  for (uint64_t i = 0; i < count; ++i) [infos[i] release];
  [super dealloc];
}
@end

id MakeFault(MTLCommandBuffer *buffer) {
  EncoderInfos *infos = [EncoderInfos alloc];
  for (MTLCommandEncoder *encoder = buffer->encoders; encoder != nil && infos->count < 64; encoder = encoder->next) {
    EncoderInfo *info = [EncoderInfo alloc];
    info->label = [encoder->label retain];
    info->state = encoder == buffer->encoders ? 4 : 1;
    infos->infos[infos->count++] = info;
  }
  NSDictionary *details = [NSDictionary alloc];
  details->key = MTLCommandBufferEncoderInfoErrorKey;
  details->object = infos;
  NSError *error = MakeError("FakeDomain", 3, "page fault");
  error->details = details;
  return error;
}
