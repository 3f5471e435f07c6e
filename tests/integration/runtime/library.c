/* A shared library with a kernel; it holds its own copy of the runtime. */
#include "contract.h"

KERNEL(count_calls)
KERNEL(slow)

__attribute__((visibility("default"))) int run_library(void) {
  void *stream = mgpuStreamCreate();
  int calls = 0, *pointer = &calls;
  void *params[] = {&pointer};
  LAUNCH(count_calls, 1, 1, params);
  int *visits = mgpuMemAlloc(40 * sizeof(int), stream, false);
  mgpuMemset32(visits, 0, 40, stream);
  LAUNCH(slow, 40, 1, (void *[]){&visits});
  for (int i = 0; i < 40; ++i)
    CHECK(visits[i] == 1);
  mgpuMemFree(visits, stream);
  mgpuStreamDestroy(stream);
  return calls;
}

__attribute__((visibility("default"))) void *stream_of_library(void) { return mgpuStreamCreate(); }
