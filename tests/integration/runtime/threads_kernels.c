/* Kernels for the CPU as the compiler makes them: one without barriers, one with threads as fibers. */
#include "cpu_device.h"

enum { ITEMS = 8 };

/* data[block] += 1, after longer than it takes to wake a thread. */
static void run_bump(mo_thread_context *context, void **params) {
  int *data = *(int **)params[0];
  volatile unsigned sum = 0;
  for (unsigned i = 0; i < 2000; ++i)
    sum += i;
  data[context->block_id[0]] += 1;
}

/* data[block] += the numbers of the threads, each of which reads what its neighbour wrote. */
static void run_meet(mo_thread_context *context, void **params) {
  int *data = *(int **)params[0], *shared = (int *)context->static_shared;
  shared[context->linear] = (int)context->linear;
  mo_cpu_barrier(context, MO_BARRIER_PLAIN, 0, 0);
  int neighbour = shared[(context->linear + 1) % ITEMS];
  mo_cpu_barrier(context, MO_BARRIER_PLAIN, 0, 0);
  shared[context->linear] = neighbour;
  mo_cpu_barrier(context, MO_BARRIER_PLAIN, 0, 0);
  for (int i = 0; context->linear == 0 && i < ITEMS; ++i)
    data[context->block_id[0]] += shared[i];
}

static const mo_kernel bump_kernel = {"bump", run_bump, mo_cpu_run_blocks, 0};
static const mo_kernel meet_kernel = {"meet", run_meet, mo_cpu_run_fibers, 64};

void bump(const mo_launch *launch, void **params) { mo_cpu_launch(launch, params, &bump_kernel); }
void meet(const mo_launch *launch, void **params) { mo_cpu_launch(launch, params, &meet_kernel); }
