/* Entry into libomptarget, or the fallback for it. */
#ifndef HOST_ENTRY_H
#define HOST_ENTRY_H

#include <stdbool.h>

#include "mgpu.h"

/* Called around each launch. After program exit has begun, launches of other threads never return. */
MO_INTERNAL void mo_begin_launch(void);
MO_INTERNAL void mo_end_launch(void);

/* mo_parallel_for for a kernel: a fork does not wait for it. */
MO_INTERNAL void mo_run_kernel(uint64_t count, mo_range body, void *argument);

/* Returns whether the calling thread is executing blocks of a kernel that it launched. */
MO_INTERNAL bool mo_runs_blocks(void);

/* Called at program exit and before dlclose: no launch begins afterwards. Returns false if threads are in
 * kernels, whose code and workers must then stay. */
MO_INTERNAL bool mo_end_launches(void);

/* Defined in pool.c. A child process starts its own workers. */
MO_INTERNAL void mo_forget_workers(void);

#endif
