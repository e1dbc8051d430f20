// Races between commands of a concurrent encoder: every access since the last barrier.
#include "tests/metal/fake/internal.h"

typedef struct {
  const char *begin, *end;
  bool writes;
  const Command *command;
} Access;

static Access *accesses;
static int count, capacity;

void HazardsClear(void) { count = 0; }

void HazardsAccess(const char *begin, uint64_t bytes, bool writes, const Command *command) {
  const char *end = begin + bytes;
  for (int i = 0; i < count; ++i) {
    const Access *earlier = &accesses[i];
    if (earlier->command == command || !(writes || earlier->writes)) continue;
    CHECK(end <= earlier->begin || earlier->end <= begin,
          "a command %s %lu bytes that one before it %s, without a barrier between them", writes ? "writes" : "reads",
          bytes, earlier->writes ? "writes" : "reads");
  }
  if (count == capacity) {
    capacity = 2 * capacity + 16;
    accesses = realloc(accesses, capacity * sizeof *accesses);
  }
  accesses[count++] = (Access){begin, end, writes, command};
}
