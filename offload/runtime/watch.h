/* The time limit of launches on the CPU. */
#ifndef WATCH_H
#define WATCH_H

#include <time.h>

#include "mgpu.h"

/* A running launch, an element of the list of all running launches. */
typedef struct mo_watched {
  const void *stub;
  const mo_shape *shape;
  time_t started;
  long limit; /* seconds; 0: not watched */
  struct mo_watched *next, **link;
} mo_watched;

/* Counts created (1) and destroyed (-1) streams: with several streams, kernels may wait for each other. */
MO_INTERNAL void mo_watch_stream(int made);
MO_INTERNAL void mo_watch_begin(mo_watched *launch);
MO_INTERNAL void mo_watch_end(mo_watched *launch);

#endif
