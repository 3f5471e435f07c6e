/* What a library, or a program, does with kernels and a runtime of its own. */
#include "contract.h"

KERNEL(mark)
KERNEL(hold)
KERNEL(meet)
KERNEL(overflow)

#define EXPORT __attribute__((visibility("default")))
enum { BLOCKS = 3, ITEMS = 1024 };
static void *const stream;

EXPORT int mark(void) {
  int result = -1, *pointer = &result;
  LAUNCH(mark, 1, 1, (void *[]){&pointer});
  return result;
}

EXPORT int meet(void) {
  int sums[BLOCKS] = {0}, *pointer = sums;
  LAUNCH(meet, BLOCKS, ITEMS, (void *[]){&pointer});
  for (int i = 0; i < BLOCKS; ++i)
    CHECK(sums[i] == ITEMS);
  return 0;
}

EXPORT int overflow(void) {
  int result, *pointer = &result;
  LAUNCH(overflow, 1, 4, (void *[]){&pointer});
  return 0;
}

EXPORT int choose(void) {
  mgpuSetDefaultDevice(0);
  return 0;
}

EXPORT void hold(int *flags) { LAUNCH(hold, 1, 1, (void *[]){&flags}); }
