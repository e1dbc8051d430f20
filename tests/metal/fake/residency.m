// Residency sets, as macOS 15 has them.
#include "tests/metal/fake/internal.h"

enum { kMost = 1 << 14 };

@interface MTLResidencySetDescriptor : NSObject
@end
@implementation MTLResidencySetDescriptor
@end

typedef struct {
  id allocation;  // retained
  int staged;     // 1: to be added, -1: to be removed
} Entry;

@interface MTLResidencySet : NSObject {
 @public
  Entry entries[kMost];
  int count;
  bool requested, attached, ended;
}
@end

static int resident, commits, requests;
int FakeResidencyRequests(void) { return __atomic_load_n(&requests, __ATOMIC_SEQ_CST); }
int FakeResident(void) { return __atomic_load_n(&resident, __ATOMIC_SEQ_CST); }
int FakeResidencyCommits(void) { return __atomic_load_n(&commits, __ATOMIC_SEQ_CST); }

@implementation MTLResidencySet
- (Entry *)entryOf:(id)allocation {
  for (int i = 0; i < count; ++i) {
    if (entries[i].allocation == allocation) return &entries[i];
  }
  return NULL;
}
- (void)addAllocation:(id)allocation {
  CHECK(Alive(allocation), "a released allocation made resident");
  CHECK(object_getClass(allocation) == objc_getClass("MTLBuffer"), "%s made resident", object_getClassName(allocation));
  CHECK([self entryOf:allocation] == NULL && count < kMost, "an allocation made resident twice, or too many");
  entries[count++] = (Entry){[allocation retain], 1};
}
- (void)removeAllocation:(id)allocation {
  Entry *entry = [self entryOf:allocation];
  CHECK(entry != NULL, "an allocation removed that is not in the set");
  if (entry != NULL) entry->staged = -1;
}
- (void)commit {
  __atomic_add_fetch(&commits, 1, __ATOMIC_SEQ_CST);
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    if (entries[i].staged < 0) {
      [entries[i].allocation release];
    } else {
      entries[kept++] = (Entry){entries[i].allocation, 0};
    }
  }
  count = kept;
  __atomic_store_n(&resident, count, __ATOMIC_SEQ_CST);
}
- (void)requestResidency {
  for (int i = 0; i < count; ++i) CHECK(entries[i].staged == 0, "residency requested before commit");
  __atomic_add_fetch(&requests, 1, __ATOMIC_SEQ_CST);
  requested = true;
}
- (void)endResidency {
  ended = true;
}
- (void)dealloc {
  CHECK(!requested || ended, "residency requested and not ended");
  CHECK(!attached, "a residency set left on its queue");
  for (int i = 0; i < count; ++i) [entries[i].allocation release];
  __atomic_store_n(&resident, 0, __ATOMIC_SEQ_CST);
  [super dealloc];
}
@end

@implementation MTLCommandQueue (Residency)
- (void)setLabel:(NSString *)label {
  CHECK(Alive(label), "a queue's label used after release");
}
- (void)addResidencySet:(MTLResidencySet *)set {
  CHECK(!set->attached, "a residency set added twice");
  [set retain];
  set->attached = true;
}
- (void)removeResidencySet:(MTLResidencySet *)set {
  CHECK(set->attached, "a residency set removed that the queue does not have");
  set->attached = false;
  [set release];
}
@end

@implementation MTLDevice (Residency)
- (id)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)descriptor error:(id *)error {
  CHECK(Alive(descriptor), "a residency set of a released descriptor");
  if (Fails("residency")) {
    *error = MakeError("FakeDomain", 1, "no residency sets today");
    return nil;
  }
  return [MTLResidencySet alloc];
}
- (BOOL)respondsToSelector:(SEL)selector {
  if (MacosMajor() < 14 && strcmp(sel_getName(selector), "setShouldMaximizeConcurrentCompilation:") == 0) return NO;
  if (MacosMajor() < 15 && strcmp(sel_getName(selector), "newResidencySetWithDescriptor:error:") == 0) return NO;
  return [super respondsToSelector:selector];
}
@end
