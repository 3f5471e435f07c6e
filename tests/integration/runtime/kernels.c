/* Kernels as an image of kind openmp exports them. */
#include "mo_launch.h"

typedef struct work {
  const mo_launch *launch;
  void **params;
} work;

static uint64_t block_count(const mo_launch *launch) {
  return (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
}

static void count_blocks(void *argument, uint64_t begin, uint64_t end) {
  int *visits = *(int **)((work *)argument)->params[0];
  for (uint64_t block = begin; block < end; ++block)
    __atomic_fetch_add(&visits[block], 1, __ATOMIC_RELAXED);
}

/* visits[block] += 1 */
void count(const mo_launch *launch, void **params) {
  work work = {launch, params};
  launch->parallel_for(block_count(launch), count_blocks, &work);
}

/* shape[0..7] = grid, block, dynamic shared memory, version */
void describe(const mo_launch *launch, void **params) {
  uint32_t *shape = *(uint32_t **)params[0];
  for (int i = 0; i < 3; ++i) {
    shape[i] = launch->grid[i];
    shape[3 + i] = launch->block[i];
  }
  shape[6] = launch->dynamic_shared;
  shape[7] = launch->version;
}

static void nest(void *argument, uint64_t begin, uint64_t end) {
  work *outer = argument;
  for (uint64_t block = begin; block < end; ++block)
    outer->launch->parallel_for(block_count(outer->launch), count_blocks, outer);
}

/* visits[block] += number of blocks */
void nested(const mo_launch *launch, void **params) {
  work work = {launch, params};
  launch->parallel_for(block_count(launch), nest, &work);
}

static void be_slow(void *argument, uint64_t begin, uint64_t end) {
  for (uint64_t block = begin; block < end; ++block) {
    volatile unsigned sum = 0;
    for (unsigned i = 0; i < 100000; ++i)
      sum += i;
    count_blocks(argument, block, block + 1);
  }
}

/* As count, but each block takes longer than waking a thread. */
void slow(const mo_launch *launch, void **params) {
  work work = {launch, params};
  launch->parallel_for(block_count(launch), be_slow, &work);
}

void failing(const mo_launch *launch, void **params) {
  (void)params;
  launch->fail("failing", "threads of one block wait at different barriers");
}

static int calls; /* one per loaded image */

/* out[0] = how often this image has run it */
void count_calls(const mo_launch *launch, void **params) {
  (void)launch;
  **(int **)params[0] = ++calls;
}
