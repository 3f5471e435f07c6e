/* A pool of streams and events of one API: the CUDA or the HIP runtime, which differ only in names. */
#ifndef STREAM_POOL_H
#define STREAM_POOL_H

#include <pthread.h>
#include <sys/types.h>

#include "mgpu.h"

/* All functions return 0 on success. */
typedef struct mo_stream_api {
  const char *prefix; /* the prefix of its function names */
  int not_ready;
  int (*get_device)(int *);
  int (*create_stream)(void **, unsigned);
  int (*synchronize_stream)(void *);
  int (*query_stream)(void *);
  int (*wait_event)(void *stream, void *event, unsigned);
  int (*create_event)(void **, unsigned);
  int (*record_event)(void *event, void *stream);
  int (*synchronize_event)(void *);
  int (*query_event)(void *);
  bool (*is_end)(int status); /* the status means that the API is shut down */
  void (*register_exit_check)(void);
  MO_NORETURN void (*stop)(int status, const char *call, const char *format, ...);
} mo_stream_api;

typedef struct mo_pooled mo_pooled;

/* Handles are never removed, so that the table has no tombstones. Its size is bounded by the limits and the
 * number of concurrently pending events. */
typedef struct mo_stream_pool {
  const mo_stream_api *api;
  pthread_mutex_t lock;
  pthread_once_t once;
  mo_pooled **handles; /* in order of creation */
  mo_pooled **slots;   /* open addressing by the API's handle */
  size_t handle_count, slot_count, cursor;
  _Atomic pid_t owner; /* the process that created streams */
  size_t turn; /* the start of the search for the next stream to share */
} mo_stream_pool;

#define MO_STREAM_POOL(functions) \
  {.api = (functions), .lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT}

MO_INTERNAL void *mo_pool_create_stream(mo_stream_pool *pool);
MO_INTERNAL void mo_pool_destroy_stream(mo_stream_pool *pool, void *stream);
MO_INTERNAL void mo_pool_synchronize(mo_stream_pool *pool, void *handle);
MO_INTERNAL void mo_pool_wait_event(mo_stream_pool *pool, void *stream, void *event);
MO_INTERNAL void *mo_pool_create_event(mo_stream_pool *pool);
MO_INTERNAL void mo_pool_destroy_event(mo_stream_pool *pool, void *event);
MO_INTERNAL void mo_pool_record_event(mo_stream_pool *pool, void *event, void *stream);
MO_INTERNAL void mo_pool_check_at_exit(mo_stream_pool *pool);

#endif
