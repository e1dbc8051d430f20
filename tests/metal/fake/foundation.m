// Foundation's few classes, and the record of what went wrong.
#include <objc/message.h>
#include <stdarg.h>
#include <stdio.h>

#include "tests/metal/fake/internal.h"

void *_NSConcreteStackBlock[32];

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
static char violations[1 << 16];
static char failing[64];
static int64_t macos_major = 15, family = 8;

void Violation(const char *format, ...) {
  pthread_mutex_lock(&fake_lock);
  const size_t used = strlen(violations);
  if (used < sizeof violations - 2) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(violations + used, sizeof violations - used - 1, format, arguments);
    va_end(arguments);
    strcat(violations, "\n");
  }
  pthread_mutex_unlock(&fake_lock);
}

const char *FakeViolations(void) { return violations; }
void FakeClear(void) { violations[0] = 0; }
void FakeMacos(int major) { macos_major = major; }
int64_t MacosMajor(void) { return macos_major; }
int64_t Family(void) { return family; }

void FakeFail(const char *what) {
  pthread_mutex_lock(&fake_lock);
  snprintf(failing, sizeof failing, "%s", what);
  pthread_mutex_unlock(&fake_lock);
}
bool Fails(const char *what) {
  pthread_mutex_lock(&fake_lock);
  const bool fails = strcmp(failing, what) == 0;
  pthread_mutex_unlock(&fake_lock);
  return fails;
}
static long allocations, failing_from, failing_once;

long FakeFailAllocation(long from, int once) {
  pthread_mutex_lock(&fake_lock);
  const long count = allocations;
  allocations = 0;
  failing_from = from;
  failing_once = once;
  pthread_mutex_unlock(&fake_lock);
  return count;
}
bool AllocationFails(void) {
  pthread_mutex_lock(&fake_lock);
  ++allocations;
  const bool fails = failing_from > 0 && (failing_once ? allocations == failing_from : allocations >= failing_from);
  pthread_mutex_unlock(&fake_lock);
  return fails;
}
int64_t FailingRun(void) {
  pthread_mutex_lock(&fake_lock);
  int64_t code = 0;
  if (strncmp(failing, "run", 3) == 0) code = failing[3] == ':' ? atoi(failing + 4) : 8;
  pthread_mutex_unlock(&fake_lock);
  return code;
}

// --- Objects that live, by class ---

static struct {
  Class class;
  long count;
} live[64];

static void CountLive(Class class, long change) {
  pthread_mutex_lock(&fake_lock);
  int i = 0;
  while (live[i].class != class && live[i].class != Nil) ++i;
  live[i].class = class;
  live[i].count += change;
  pthread_mutex_unlock(&fake_lock);
}

long FakeLive(void) {
  pthread_mutex_lock(&fake_lock);
  long sum = 0;
  for (int i = 0; live[i].class != Nil; ++i) sum += live[i].count;
  pthread_mutex_unlock(&fake_lock);
  return sum;
}

const char *FakeLiveNames(void) {
  static char names[2048];
  pthread_mutex_lock(&fake_lock);
  names[0] = 0;
  for (int i = 0; live[i].class != Nil; ++i) {
    if (live[i].count == 0) continue;
    const size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s %ld", used > 0 ? ", " : "", class_getName(live[i].class),
             live[i].count);
  }
  pthread_mutex_unlock(&fake_lock);
  return names;
}

// --- What messages find ---

// What an object becomes when its last reference goes. It knows no message.
__attribute__((objc_root_class))
@interface FakeZombie {
  Class isa;
}
@end
@implementation FakeZombie
@end

static id Nothing(id receiver, SEL selector, ...) {
  (void)receiver;
  (void)selector;
  return nil;
}

// The runtime asks for what a message does that its receiver does not know.
static IMP Unknown(id receiver, SEL selector) {
  const Class class = object_getClass(receiver);
  if (class == objc_getClass("FakeZombie")) {
    Violation("%s used after its release: %s", class_getName(((NSObject *)receiver)->was), sel_getName(selector));
  } else {
    Violation("%s does not know %s", class_getName(class), sel_getName(selector));
  }
  return (IMP)Nothing;
}

static int64_t Number(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text == NULL ? otherwise : atoll(text);
}

__attribute__((constructor)) static void Load(void) {
  __objc_msg_forward2 = Unknown;
  family = Number("FAKE_METAL_FAMILY", family);
  macos_major = Number("FAKE_METAL_MACOS", macos_major);
  const char *fails = getenv("FAKE_METAL_FAIL");
  if (fails != NULL) FakeFail(fails);
  // The compilers that this process starts need no GPU.
  if (getenv("FAKE_METAL_INHERIT") == NULL) unsetenv("LD_PRELOAD");
}

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
  CountLive(self, 1);
  return object;
}
- (id)init {
  return self;
}
- (id)retain {
  __atomic_add_fetch(&references, 1, __ATOMIC_SEQ_CST);
  return self;
}
- (void)release {
  if (__atomic_sub_fetch(&references, 1, __ATOMIC_SEQ_CST) == 0) [self dealloc];
}
// The memory stays: a use after release is seen and not undefined.
- (void)dealloc {
  CountLive(isa, -1);
  was = isa;
  isa = objc_getClass("FakeZombie");
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
  struct Autoreleased *found = autoreleased;
  while (found != NULL && found != &mark) found = found->next;
  CHECK(found != NULL || drained, "a pool is not released on the thread that made it");
  while (found != NULL && autoreleased != &mark) {
    struct Autoreleased *entry = autoreleased;
    autoreleased = entry->next;
    if (object_getClass(entry->object) == isa && entry == &((NSAutoreleasePool *)entry->object)->mark) {
      Violation("pools not nested");
      ((NSAutoreleasePool *)entry->object)->drained = true;
      continue;
    }
    [entry->object release];
    free(entry);
  }
  if (found != NULL) autoreleased = mark.next;
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
- (void)dealloc {
  free(text);
  [super dealloc];
}
@end
NSString *MakeString(const char *text) { return [[NSString alloc] initWithBytes:text length:strlen(text) encoding:4]; }

@implementation NSDictionary
- (id)objectForKey:(id)wanted {
  return wanted == key ? object : nil;
}
- (void)dealloc {
  [object release];
  [super dealloc];
}
@end

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
  free(text);
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
