// Pipelines by descriptor, and binary archives of them. An archive knows pipelines by their labels.
#include <stdio.h>

#include "tests/metal/fake/internal.h"

static const char kMagic[] = "fake archive\n";

static int compiled, limited;
int FakePipelinesCompiled(void) { return __atomic_load_n(&compiled, __ATOMIC_SEQ_CST); }
int FakePipelinesLimited(void) { return __atomic_load_n(&limited, __ATOMIC_SEQ_CST); }

@implementation NSURL
+ (id)fileURLWithPath:(NSString *)path {
  NSURL *url = [NSURL alloc];
  url->path = [path retain];
  return Autorelease(url);
}
- (void)dealloc {
  [path release];
  [super dealloc];
}
@end

@implementation NSArray (Archive)
+ (id)arrayWithObject:(id)object {
  NSArray *array = [NSArray alloc];
  array->only = [object retain];
  return Autorelease(array);
}
@end

@implementation NSProcessInfo (Archive)
- (id)operatingSystemVersionString {
  char text[64];
  snprintf(text, sizeof text, "Version %ld.2.1 (Build 24A1)", (long)MacosMajor());
  return Autorelease(MakeString(text));
}
@end

@interface MTLComputePipelineDescriptor : NSObject {
 @public
  MTLFunction *function;
  NSString *label;
  NSArray *archives;
  uint64_t threads;
}
@end
@implementation MTLComputePipelineDescriptor
- (void)setComputeFunction:(MTLFunction *)new_function {
  [new_function retain];
  [function release];
  function = new_function;
}
- (void)setLabel:(NSString *)new_label {
  [new_label retain];
  [label release];
  label = new_label;
}
- (void)setBinaryArchives:(NSArray *)new_archives {
  if (new_archives != nil) [new_archives retain];
  if (archives != nil) [archives release];
  archives = new_archives;
}
- (void)setMaxTotalThreadsPerThreadgroup:(uint64_t)count {
  CHECK(count <= 1024, "at most %lu threads in a threadgroup", count);
  threads = count;
}
- (void)dealloc {
  [function release];
  [label release];
  if (archives != nil) [archives release];
  [super dealloc];
}
@end

@interface MTLBinaryArchiveDescriptor : NSObject {
 @public
  NSURL *url;
}
@end
@implementation MTLBinaryArchiveDescriptor
- (void)setUrl:(NSURL *)new_url {
  url = [new_url retain];
}
- (void)dealloc {
  if (url != nil) [url release];
  [super dealloc];
}
@end

@interface MTLBinaryArchive : NSObject {
 @public
  char labels[4096];  // each followed by a newline
}
@end
@implementation MTLBinaryArchive
- (bool)has:(MTLComputePipelineDescriptor *)descriptor {
  char line[256];
  snprintf(line, sizeof line, "%s\n", [descriptor->label UTF8String]);
  return strstr(labels, line) != NULL;
}
- (BOOL)addComputePipelineFunctionsWithDescriptor:(MTLComputePipelineDescriptor *)descriptor error:(id *)error {
  CHECK(Alive(descriptor) && descriptor->function != nil, "a pipeline without a function archived");
  if (Fails("archive")) {
    *error = MakeError("MTLBinaryArchiveDomain", 3, "it cannot be archived");
    return NO;
  }
  strncat(labels, [descriptor->label UTF8String], 255);
  strcat(labels, "\n");
  return YES;
}
- (BOOL)serializeToURL:(NSURL *)url error:(id *)error {
  FILE *file = fopen([url->path UTF8String], "w");
  const bool full = Fails("disk");
  if (file != NULL) fprintf(file, "%s%s", kMagic, full ? "" : labels);
  if (file != NULL && fclose(file) == 0 && !full) return YES;
  *error = MakeError("NSCocoaErrorDomain", 640, "no space is left");
  return NO;
}
@end

@implementation MTLDevice (Archive)
- (id)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor *)descriptor error:(id *)error {
  MTLBinaryArchive *archive = [MTLBinaryArchive alloc];
  if (descriptor->url == nil) return archive;
  char text[sizeof archive->labels] = {0};
  FILE *file = fopen([descriptor->url->path UTF8String], "r");
  const size_t count = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file != NULL) fclose(file);
  if (count < strlen(kMagic) || strncmp(text, kMagic, strlen(kMagic)) != 0) {
    [archive release];
    *error = MakeError("MTLBinaryArchiveDomain", 1, "no archive");
    return nil;
  }
  strcpy(archive->labels, text + strlen(kMagic));
  return archive;
}
- (id)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor *)descriptor
                                    options:(uint64_t)options
                                 reflection:(id *)reflection
                                      error:(id *)error {
  enum { kFailOnMiss = 4 };
  CHECK((options & ~(uint64_t)kFailOnMiss) == 0 && reflection == NULL, "pipeline options 0x%lx", options);
  CHECK(descriptor->label != nil && descriptor->function != nil, "a pipeline without a label or function");
  const bool hit = descriptor->archives != nil && [(MTLBinaryArchive *)descriptor->archives->only has:descriptor];
  if (!hit && (options & kFailOnMiss) != 0) {
    *error = MakeError("MTLBinaryArchiveDomain", 4, "not in the archives");
    return nil;
  }
  MTLComputePipelineState *state = [self newComputePipelineStateWithFunction:descriptor->function error:error];
  if (state == nil) return nil;
  state->limit = descriptor->threads;
  if (state->limit > 0) __atomic_add_fetch(&limited, 1, __ATOMIC_SEQ_CST);
  // What one has just put into an archive was compiled for that.
  if ((options & kFailOnMiss) == 0) __atomic_add_fetch(&compiled, 1, __ATOMIC_SEQ_CST);
  return state;
}
@end
