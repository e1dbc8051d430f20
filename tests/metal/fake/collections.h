// Foundation's collections, as far as MPSGraph's callers use them (collections.m).
#pragma once

#include "tests/metal/fake/internal.h"

@interface NSNumber : NSObject {
 @public
  int64_t value;
}
@end

enum { kMaxObjects = 32 };
@interface NSMutableArray : NSObject {
 @public
  id objects[kMaxObjects];
  uint64_t count;
}
- (void)addObject:(id)object;
@end

@interface NSMutableDictionary : NSObject {
 @public
  NSMutableArray *keys, *values;
}
@end
