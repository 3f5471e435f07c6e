/* The calling convention between the host runtime and a CPU kernel image (kind openmp).
 *
 * A kernel image exports, for each kernel, the function
 *     void KERNEL(const mo_launch *launch, void **params)
 * with the params of mgpuLaunchKernel: params[i] points to argument i.
 * libomptarget ignores teams and threads for host kernels, therefore mo_launch contains the grid
 * (KernelArgsTy version 2, two literal arguments).
 */
#ifndef MO_LAUNCH_H
#define MO_LAUNCH_H

#include <stdint.h>

/* Version 1 does not have `cluster`. A launch without clusters uses version 1. */
#define MO_LAUNCH_VERSION 2

/* Runs items begin <= i < end. */
typedef void (*mo_range)(void *argument, uint64_t begin, uint64_t end);

typedef struct mo_launch {
  uint32_t version;        /* 1, or MO_LAUNCH_VERSION */
  uint32_t dynamic_shared; /* bytes of dynamic shared memory per block */
  uint32_t grid[3];        /* blocks in x, y, z */
  uint32_t block[3];       /* threads per block in x, y, z; at most 1024 in all */
  /* Distributes 0..count over the threads of the host runtime; returns when it is complete. With a count of 0, it
   * registers body as a cleanup function, which is called with 0, 0 when the program exits or the library is
   * unloaded. A runtime may ignore this. */
  void (*parallel_for)(uint64_t count, mo_range body, void *argument);
  /* Reports the message with the kernel's name and ends the program. A second line of the message is a hint. It
   * returns if it is called outside of parallel_for and a caller handles the error; the launch must then return too. */
  void (*fail)(const char *kernel, const char *message);
  uint32_t cluster[3]; /* blocks per cluster in x, y, z */
} mo_launch;

#endif
