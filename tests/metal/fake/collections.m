#include "tests/metal/fake/collections.h"

@implementation NSNumber
+ (id)numberWithLongLong:(int64_t)value {
  NSNumber *number = [NSNumber alloc];
  number->value = value;
  return Autorelease(number);
}
@end

@implementation NSMutableArray
+ (id)arrayWithCapacity:(uint64_t)capacity {
  CHECK(capacity <= kMaxObjects, "an array of %lu", capacity);
  return Autorelease([NSMutableArray alloc]);
}
- (void)addObject:(id)object {
  CHECK(object != nil && Alive(object) && count < kMaxObjects, "nothing, or a released object, in an array");
  if (object != nil && Alive(object) && count < kMaxObjects) objects[count++] = [object retain];
}
- (uint64_t)count {
  return count;
}
- (id)objectAtIndex:(uint64_t)index {
  CHECK(index < count, "index %lu of an array of %lu", index, count);
  return index < count ? objects[index] : nil;
}
- (void)dealloc {
  for (uint64_t i = 0; i < count; ++i) [objects[i] release];
  [super dealloc];
}
@end

@implementation NSMutableDictionary
+ (id)dictionaryWithCapacity:(uint64_t)capacity {
  CHECK(capacity <= kMaxObjects, "a dictionary of %lu", capacity);
  NSMutableDictionary *dictionary = [NSMutableDictionary alloc];
  dictionary->keys = [NSMutableArray alloc];
  dictionary->values = [NSMutableArray alloc];
  return Autorelease(dictionary);
}
- (void)setObject:(id)object forKey:(id)key {
  [keys addObject:key];
  [values addObject:object];
}
- (void)dealloc {
  [keys release];
  [values release];
  [super dealloc];
}
@end
