/* The way into libomptarget, or the fallback for it, and out of it. */
#ifndef HOST_ENTRY_H
#define HOST_ENTRY_H

#include <stdbool.h>

#include "mgpu.h"

/* Around each launch. When the program ends, a launch of another thread than the one that ends it never
 * returns. */
MO_INTERNAL void mo_begin_launch(void);
MO_INTERNAL void mo_end_launch(void);

/* As mo_parallel_for, for a kernel: a fork does not wait for it. */
MO_INTERNAL void mo_run_kernel(uint64_t count, mo_range body, void *argument);

/* Returns whether the calling thread runs blocks of a kernel that it launched. */
MO_INTERNAL bool mo_runs_blocks(void);

/* At the end of the program and before dlclose: no launch begins any more. Returns false if threads are in
 * kernels: their code, and the workers, must stay. */
MO_INTERNAL bool mo_end_launches(void);

/* Of pool.c: a child starts its own workers. */
MO_INTERNAL void mo_forget_workers(void);

#endif
