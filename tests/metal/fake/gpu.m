// The GPU: a thread that runs command buffers in order of their commit, and one that tells of their
// completion while the next ones run.
#include <time.h>
#include <unistd.h>

#include "tests/metal/fake/internal.h"

// How many command buffers of a queue may be under way (Metal's default).
// So long that whoever reads results without waiting finds that they are missing.
static const useconds_t kLatency = 200;

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static MTLCommandBuffer *committed, *finished;  // guarded by fake_lock, in order
static bool paused;                             // so is this
static long commits, place_waits;
long FakePlaceWaits(void) { return __atomic_load_n(&place_waits, __ATOMIC_SEQ_CST); }
long FakeCommitted(void) { return __atomic_load_n(&commits, __ATOMIC_SEQ_CST); }

enum { kDeviceRemoved = 11 };
static const struct {
  int64_t code;
  const char *text;
} kFailures[] = {
    {2, "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"},
    {3, "Caused GPU Address Fault Error (0000000b:kIOGPUCommandBufferCallbackErrorPageFault)"},
    {4,
     "Ignored (for causing prior/excessive GPU errors) (00000004:kIOGPUCommandBufferCallbackErrorSubmissionsIgnored)"},
    {8, "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"},
    {kDeviceRemoved, "Device was removed"},
};

static const char *FailureText(int64_t code) {
  for (size_t i = 0; i < sizeof kFailures / sizeof *kFailures; ++i) {
    if (kFailures[i].code == code) return kFailures[i].text;
  }
  return "Internal Error (00000001:kIOGPUCommandBufferCallbackErrorUnknown)";
}

// Under fake_lock.
static void Append(MTLCommandBuffer **list, MTLCommandBuffer *buffer) {
  while (*list != nil) list = &(*list)->next;
  *list = buffer;
  buffer->next = nil;
  pthread_cond_broadcast(&changed);
}

// The first of the list, when there is one. At most `milliseconds`, unless that is 0.
static MTLCommandBuffer *Take(MTLCommandBuffer **list, int milliseconds) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += milliseconds * 1000000l;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&fake_lock);
  int status = 0;
  while ((*list == nil || (paused && list == &committed)) && status == 0) {
    status = milliseconds == 0 ? pthread_cond_wait(&changed, &fake_lock)
                               : pthread_cond_timedwait(&changed, &fake_lock, &until);
  }
  MTLCommandBuffer *buffer = *list;
  if (buffer != nil) *list = buffer->next;
  pthread_mutex_unlock(&fake_lock);
  return buffer;
}

void FakePause(int pause) {
  pthread_mutex_lock(&fake_lock);
  paused = pause;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&fake_lock);
}

static double Seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void Run(MTLCommandBuffer *buffer) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  buffer->gpu_start = Seconds();
  usleep(kLatency);
  const int64_t failure = FailingRun();
  if (failure != 0) {
    const bool of_encoder = failure != kDeviceRemoved && buffer->encoder_count > 0;
    if (of_encoder) buffer->encoders[buffer->encoder_count - 1]->state = kEncoderFaulted;
    FailCommandBuffer(buffer, failure, FailureText(failure));
  }
  for (size_t i = 0; i < buffer->count && buffer->error == nil; ++i) {
    FakeCommand *command = buffer->commands[i];
    if (command->after_barrier) FakeBarrier();
    [command runIn:buffer];
    command->encoder->state = buffer->error == nil ? kEncoderDone : kEncoderFaulted;
  }
  buffer->gpu_end = Seconds();
  // What it named is nobody's business any more, before its handler runs.
  for (size_t i = 0; i < buffer->count; ++i) [buffer->commands[i] release];
  buffer->count = 0;
  [pool release];
}

static void *RunAll(void *unused) {
  (void)unused;
  while (true) {
    MTLCommandBuffer *buffer = Take(&committed, 0);
    Run(buffer);
    pthread_mutex_lock(&fake_lock);
    Append(&finished, buffer);
    pthread_mutex_unlock(&fake_lock);
  }
  return NULL;
}

static void Complete(MTLCommandBuffer *buffer) {
  pthread_mutex_lock(&fake_lock);
  buffer->status = buffer->error != nil ? kFailed : kCompleted;
  --buffer->queue->outstanding;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&fake_lock);
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  for (struct GraphHandler *each = buffer->graph_handlers; each != NULL; each = each->next) {
    ((void (*)(Block *, id, id))(void (*)(void))each->block->invoke)(each->block, nil, buffer->error);
  }
  if (buffer->handler != NULL) buffer->handler->invoke(buffer->handler, buffer);
  [pool release];
  [buffer release];
}

static void *CompleteAll(void *unused) {
  (void)unused;
  while (true) {
    MTLCommandBuffer *first = Take(&finished, 0);
    MTLCommandBuffer *second = Fails("reorder") ? Take(&finished, 20) : nil;
    if (second != nil) Complete(second);
    Complete(first);
  }
  return NULL;
}

static void StartThreads(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, RunAll, NULL);
  pthread_create(&thread, NULL, CompleteAll, NULL);
}

void StartCommandBuffer(MTLCommandBuffer *buffer) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, StartThreads);
  [buffer retain];
  pthread_mutex_lock(&fake_lock);
  buffer->status = kCommitted;
  __atomic_add_fetch(&commits, 1, __ATOMIC_SEQ_CST);
  --buffer->queue->uncommitted;
  Append(&committed, buffer);
  pthread_mutex_unlock(&fake_lock);
}

void TakePlace(MTLCommandQueue *queue) {
  pthread_mutex_lock(&fake_lock);
  if (queue->outstanding >= queue->places) ++place_waits;
  while (queue->outstanding >= queue->places && queue->uncommitted < queue->places) {
    pthread_cond_wait(&changed, &fake_lock);
  }
  const bool stuck = queue->uncommitted >= queue->places;
  ++queue->outstanding;
  ++queue->uncommitted;
  pthread_mutex_unlock(&fake_lock);
  CHECK(!stuck, "%d command buffers of a queue are not committed: Metal would wait for ever", queue->places);
}

void GiveUpPlace(MTLCommandQueue *queue) {
  pthread_mutex_lock(&fake_lock);
  --queue->outstanding;
  --queue->uncommitted;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&fake_lock);
}
