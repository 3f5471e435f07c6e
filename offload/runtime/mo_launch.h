/* The call between the host runtime and a kernel image of kind openmp on the CPU.
 *
 * A kernel image exports, for each kernel, the function
 *     void KERNEL(const mo_launch *launch, void **params)
 * where params is what mgpuLaunchKernel was given: params[i] points to argument i.
 * libomptarget ignores teams and threads for host kernels, so that the grid travels in mo_launch
 * (KernelArgsTy version 2, two literal arguments).
 */
#ifndef MO_LAUNCH_H
#define MO_LAUNCH_H

#include <stdint.h>

/* Version 1 ends before `cluster`. A launch without clusters is one of version 1. */
#define MO_LAUNCH_VERSION 2

/* Runs work items begin <= i < end. */
typedef void (*mo_range)(void *argument, uint64_t begin, uint64_t end);

typedef struct mo_launch {
  uint32_t version;        /* 1, or MO_LAUNCH_VERSION */
  uint32_t dynamic_shared; /* bytes of dynamic shared memory per block */
  uint32_t grid[3];        /* blocks in x, y, z */
  uint32_t block[3];       /* threads per block in x, y, z; at most 1024 in all */
  /* Splits 0..count over the threads of the host runtime; returns when all has run. With a count of 0
   * nothing runs: body is called with 0, 0 when the program or library ends, for what the image keeps. A
   * runtime may ignore this. */
  void (*parallel_for)(uint64_t count, mo_range body, void *argument);
  /* Reports the message with the kernel's name and ends the program. It returns, for the launch to return,
   * if it is called outside of parallel_for and the launch has a caller that handles errors. */
  void (*fail)(const char *kernel, const char *message);
  uint32_t cluster[3]; /* blocks per cluster in x, y, z */
} mo_launch;

#endif
