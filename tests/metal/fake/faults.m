// How Metal tells which encoder failed: an array in the error's userInfo, with an object for each.
#include "tests/metal/fake/internal.h"

// A constant string of Metal's; here it need only be an object like no other.
static long name;
id MTLCommandBufferEncoderInfoErrorKey = (id)&name;

@implementation MTLCommandBufferEncoderInfo
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

@interface FakeEncoderInfos : NSArray {
 @public
  MTLCommandBufferEncoderInfo **infos;
  uint64_t count;
}
@end
@implementation FakeEncoderInfos
- (uint64_t)count {
  return count;
}
- (id)objectAtIndex:(uint64_t)index {
  CHECK(index < count, "index %lu of an array of %lu", index, count);
  return index < count ? infos[index] : nil;
}
- (void)dealloc {
  for (uint64_t i = 0; i < count; ++i) [infos[i] release];
  free(infos);
  [super dealloc];
}
@end

NSDictionary *MakeEncoderDetails(MTLCommandBuffer *buffer) {
  FakeEncoderInfos *infos = [FakeEncoderInfos alloc];
  infos->count = buffer->encoder_count;
  infos->infos = malloc(infos->count * sizeof *infos->infos);
  for (uint64_t i = 0; i < infos->count; ++i) infos->infos[i] = [buffer->encoders[i] retain];
  NSDictionary *details = [NSDictionary alloc];
  details->key = MTLCommandBufferEncoderInfoErrorKey;
  details->object = infos;
  return details;
}
