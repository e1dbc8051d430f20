// Foundation's few classes, and the record of what went wrong.
#include "tests/metal/fake/internal.h"

#include <stdarg.h>
#include <stdio.h>

void *_NSConcreteStackBlock[32];

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static char violations[4096];
static long live;
static const char *failing = "";
static int64_t macos_major = 15;

void Violation(const char *format, ...) {
  pthread_mutex_lock(&fake_lock);
  const size_t used = strlen(violations);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(violations + used, sizeof violations - used - 1, format, arguments);
  va_end(arguments);
  strcat(violations, "\n");
  pthread_mutex_unlock(&fake_lock);
}

const char *FakeViolations(void) { return violations; }
void FakeClear(void) { violations[0] = 0; }
long FakeLive(void) { return __atomic_load_n(&live, __ATOMIC_SEQ_CST); }
void FakeFail(const char *what) { failing = what; }
void FakeMacos(int major) { macos_major = major; }
int64_t MacosMajor(void) { return macos_major; }
bool Fails(const char *what) { return strcmp(failing, what) == 0; }

// --- Foundation ---

static __thread struct Autoreleased *autoreleased;

id Autorelease(id object) {
  CHECK(autoreleased != NULL, "%s autoreleased without a pool", object_getClassName(object));
  struct Autoreleased *entry = malloc(sizeof *entry);
  *entry = (struct Autoreleased){object, autoreleased};
  autoreleased = entry;
  return object;
}

bool Alive(NSObject *object) { return __atomic_load_n(&object->references, __ATOMIC_SEQ_CST) > 0; }

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
NSString *MakeString(const char *text) { return [[NSString alloc] initWithBytes:text length:strlen(text) encoding:4]; }

@implementation NSError
- (id)localizedDescription {
  return Autorelease(MakeString(text));
}
- (id)domain {
  return Autorelease(MakeString(domain));
}
- (int64_t)code {
  return code;
}
- (id)userInfo {
  return details;
}
- (void)dealloc {
  [details release];
  [super dealloc];
}
@end
id MakeError(const char *domain, int64_t code, const char *text) {
  NSError *error = [NSError alloc];
  error->text = strdup(text);
  error->domain = domain;
  error->code = code;
  return Autorelease(error);
}

@implementation NSProcessInfo
+ (id)processInfo {
  return Autorelease([NSProcessInfo alloc]);
}
- (OsVersion)operatingSystemVersion {
  return (OsVersion){macos_major, 2, 1};
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
