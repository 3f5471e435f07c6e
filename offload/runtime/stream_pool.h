/* The streams and events of one API, pooled; the CUDA and the HIP runtime differ in names only. */
#ifndef STREAM_POOL_H
#define STREAM_POOL_H

#include <pthread.h>
#include <sys/types.h>

#include "mgpu.h"

/* Every call returns 0 where it succeeds. */
typedef struct mo_stream_api {
  const char *prefix; /* of the names of its functions */
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
  bool (*is_end)(int status); /* the API has come to its end */
  void (*register_exit_check)(void);
  MO_NORETURN void (*stop)(int status, const char *call, const char *format, ...);
} mo_stream_api;

typedef struct mo_pooled mo_pooled;

/* Handles are never removed, so that the table needs no tombstones; it is bounded by the limits
 * and by the number of events that are pending at a time. */
typedef struct mo_stream_pool {
  const mo_stream_api *api;
  pthread_mutex_t lock;
  pthread_once_t once;
  mo_pooled **handles; /* in order of creation */
  mo_pooled **slots;   /* open addressing by the API's handle */
  size_t handle_count, slot_count, cursor;
  _Atomic pid_t owner; /* the process that made streams */
  size_t turn; /* where the next stream to share is looked for */
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
