/* The time limit of launches on the CPU. */
#ifndef WATCH_H
#define WATCH_H

#include <time.h>

#include "mgpu.h"

/* A launch that runs; in the list of all while it does. */
typedef struct mo_watched {
  const void *stub;
  const mo_shape *shape;
  time_t started;
  long limit; /* seconds; 0: not watched */
  struct mo_watched *next, **link;
} mo_watched;

/* A stream was made (1) or destroyed (-1): with several, kernels may wait for each other. */
MO_INTERNAL void mo_watch_stream(int made);
MO_INTERNAL void mo_watch_begin(mo_watched *launch);
MO_INTERNAL void mo_watch_end(mo_watched *launch);

#endif
