/* Kernels for the CPU, with the code that the compiler links into each image. MARK tells the images apart. */
#include <string.h>

#include "../../../offload/runtime/cpu_device.c"

/* The program may watch the image being loaded. */
__attribute__((weak)) void image_is_loading(void);
__attribute__((constructor)) static void load(void) {
  if (image_is_loading)
    image_is_loading();
}

/* Or wait in the middle of a block. */
__attribute__((weak)) void block_is_running(void);

/* result[0] = MARK */
static void run_mark(mo_thread_context *context, void **params) {
  (void)context;
  **(int **)params[0] = MARK;
}

/* The threads of a block meet once: sum[block] = their number. */
static void run_meet(mo_thread_context *context, void **params) {
  int *sum = *(int **)params[0];
  uint32_t block = context->block_id[0];
  __atomic_fetch_add(&sum[block], 1, __ATOMIC_RELAXED);
  mo_cpu_barrier(context, MO_BARRIER_PLAIN, 0, 0);
  if (block_is_running && context->linear == 0 && block == 0)
    block_is_running();
  if ((uint32_t)sum[block] != context->block->thread_count)
    __builtin_trap();
}

/* Says that it runs, and runs until it is asked to end. */
static void run_hold(mo_thread_context *context, void **params) {
  int *flags = *(int **)params[0];
  (void)context;
  __atomic_store_n(&flags[0], 1, __ATOMIC_RELEASE);
  while (!__atomic_load_n(&flags[1], __ATOMIC_ACQUIRE))
    ;
}

/* Uses more stack than a thread has, without a step that is larger than a page. */
__attribute__((noinline)) static int descend(mo_thread_context *context, int depth) {
  volatile char frame[1024];
  memset((char *)frame, depth, sizeof frame);
  int below = depth ? descend(context, depth - 1) : 0;
  return below + frame[depth % 1024];
}
static void run_overflow(mo_thread_context *context, void **params) {
  if (context->linear == 1)
    **(int **)params[0] = descend(context, 300);
  mo_cpu_barrier(context, MO_BARRIER_PLAIN, 0, 0);
}

#define KERNEL(name, range)                                                \
  static const mo_kernel name##_kernel = {#name, run_##name, range, 0}; \
  void name(const mo_launch *launch, void **params) { mo_cpu_launch(launch, params, &name##_kernel); }
KERNEL(mark, mo_cpu_run_blocks)
KERNEL(hold, mo_cpu_run_blocks)
KERNEL(meet, mo_cpu_run_fibers)
KERNEL(overflow, mo_cpu_run_fibers)
