/* A pool of streams and events. Those of callers are not part of it.
 *
 * Code from gpu-to-llvm never destroys a stream whose token is used only by `gpu.wait async`. Therefore streams
 * are shared above a limit; sharing a stream between two tokens only adds ordering. A handle that is not in the
 * table is a stream of the caller: it is used and synchronized, but never destroyed. If a token is a function
 * argument, gpu-to-llvm also passes it as an event.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "catch.h"
#include "stream_pool.h"

enum { STREAMS_PER_DEVICE = 32, EVENTS_PER_DEVICE = 256, EVENTS_TO_TRY = 8 };
/* These values are equal in the CUDA and the HIP runtime. */
enum { STREAM_NON_BLOCKING = 1, EVENT_DISABLE_TIMING = 2 };

struct mo_pooled {
  void *raw; /* a stream or an event of the API */
  int device;
  unsigned references; /* 0: free */
  bool is_event;
  bool is_recorded; /* since the current holder acquired the event */
};

/* Reports a failed call of the API. `call` is the name of the function without its prefix. */
#define API_CHECK(pool, status, call, text)             \
  do {                                                  \
    int status_ = (status);                             \
    if (status_ != 0)                                   \
      stop((pool)->api, status_, call, text);           \
  } while (0)

MO_NORETURN static void stop(const mo_stream_api *api, int status, const char *call,
                             const char *text) {
  char name[64];
  snprintf(name, sizeof name, "%s%s", api->prefix, call);
  api->stop(status, name, "%s", text);
}

static size_t slot_of(const mo_stream_pool *pool, const void *raw) {
  size_t slot = ((uintptr_t)raw >> 4) * 0x9E3779B97F4A7C15u >> 20 & (pool->slot_count - 1);
  while (pool->slots[slot] && pool->slots[slot]->raw != raw)
    slot = (slot + 1) & (pool->slot_count - 1);
  return slot;
}

static void grow_table(mo_stream_pool *pool) {
  pool->slot_count = pool->slot_count ? 2 * pool->slot_count : 64;
  free(pool->slots);
  pool->slots = calloc(pool->slot_count, sizeof *pool->slots);
  pool->handles = realloc(pool->handles, pool->slot_count / 2 * sizeof *pool->handles);
  if (!pool->slots || !pool->handles) {
    mo_error("out of host memory for %zu streams and events", pool->slot_count);
    mo_hint("free host memory");
  }
  for (size_t i = 0; i < pool->handle_count; ++i)
    pool->slots[slot_of(pool, pool->handles[i]->raw)] = pool->handles[i];
}

static mo_pooled *add_handle(mo_stream_pool *pool, void *raw, int device, bool is_event) {
  mo_pooled *added = malloc(sizeof *added);
  if (2 * (pool->handle_count + 1) > pool->slot_count)
    grow_table(pool);
  if (!added) {
    mo_error("out of host memory for a stream");
    mo_hint("free host memory");
  }
  *added = (mo_pooled){raw, device, 0, is_event, false};
  pool->handles[pool->handle_count++] = added;
  pool->slots[slot_of(pool, raw)] = added;
  return added;
}

/* Returns a handle of the pool, NULL for one of the caller. The caller must hold the lock. */
static mo_pooled *find_handle(const mo_stream_pool *pool, const void *raw) {
  return pool->slot_count && raw ? pool->slots[slot_of(pool, raw)] : NULL;
}

static bool is_event(mo_stream_pool *pool, const void *raw) {
  mo_lock(&pool->lock);
  const mo_pooled *found = find_handle(pool, raw);
  bool result = found && found->is_event;
  mo_unlock(&pool->lock);
  return result;
}

static int current_device(const mo_stream_pool *pool) {
  int device;
  API_CHECK(pool, pool->api->get_device(&device), "GetDevice", "choosing a stream");
  return device;
}

/* Returns the handle with an index, NULL after the last one. */
static mo_pooled *nth_handle(mo_stream_pool *pool, size_t number) {
  mo_lock(&pool->lock);
  mo_pooled *handle = number < pool->handle_count ? pool->handles[number] : NULL;
  mo_unlock(&pool->lock);
  return handle;
}

/* Reports errors of work that was never waited for. Other threads may still create streams. A child process has
 * no work, because the API does not work there. */
void mo_pool_check_at_exit(mo_stream_pool *pool) {
  mo_pooled *handle;
  if (pool->owner != getpid())
    return;
  for (size_t i = 0; (handle = nth_handle(pool, i)); ++i) {
    if (handle->is_event)
      continue;
    int status = pool->api->synchronize_stream(handle->raw);
    /* The program may have shut down the API itself, for example with cudaDeviceReset. */
    if (status != 0 && !pool->api->is_end(status))
      stop(pool->api, status, "StreamSynchronize", "waiting for unfinished work at exit");
  }
}

/* Returns a free stream of the device whose work is complete, so that new work does not wait for unrelated work.
 * If there is none, and the limit is reached, returns the stream with the fewest holders, in turn; otherwise
 * NULL. The caller must hold the lock. */
static mo_pooled *reusable_stream(mo_stream_pool *pool, int device) {
  size_t count = 0, turn = pool->turn;
  mo_pooled *shared = NULL;
  for (size_t i = 0; i < pool->handle_count; ++i) {
    size_t number = (pool->turn + i) % pool->handle_count;
    mo_pooled *stream = pool->handles[number];
    if (stream->is_event || stream->device != device)
      continue;
    if (!stream->references && pool->api->query_stream(stream->raw) == 0)
      return stream;
    if (!shared || stream->references < shared->references) {
      shared = stream;
      turn = number + 1;
    }
    ++count;
  }
  if (count < STREAMS_PER_DEVICE)
    return NULL;
  pool->turn = turn;
  return shared;
}

void *mo_pool_create_stream(mo_stream_pool *pool) {
  pthread_once(&pool->once, pool->api->register_exit_check);
  pool->owner = getpid();
  int device = current_device(pool);
  mo_lock(&pool->lock);
  mo_pooled *stream = reusable_stream(pool, device);
  if (!stream) {
    void *raw;
    API_CHECK(pool, pool->api->create_stream(&raw, STREAM_NON_BLOCKING), "StreamCreateWithFlags",
              "making a stream");
    stream = add_handle(pool, raw, device, false);
  }
  ++stream->references;
  mo_unlock(&pool->lock);
  return stream->raw;
}

static void release_handle(mo_stream_pool *pool, void *raw) {
  mo_lock(&pool->lock);
  mo_pooled *found = find_handle(pool, raw);
  if (found && found->references)
    --found->references;
  mo_unlock(&pool->lock);
}

void mo_pool_destroy_stream(mo_stream_pool *pool, void *stream) {
  int status = is_event(pool, stream) ? 0 : pool->api->query_stream(stream);
  if (status != pool->api->not_ready)
    API_CHECK(pool, status, "StreamQuery", "giving up a stream");
  release_handle(pool, stream);
}

void mo_pool_synchronize(mo_stream_pool *pool, void *raw) {
  if (is_event(pool, raw))
    API_CHECK(pool, pool->api->synchronize_event(raw), "EventSynchronize", "waiting for an event");
  else
    API_CHECK(pool, pool->api->synchronize_stream(raw), "StreamSynchronize",
              "waiting for a stream");
}

/* Returns a free event of the device, or one that was recorded and is complete and thus is probably abandoned. A
 * holder that still waits for it returns immediately, or waits for a later record, which is also correct. The
 * caller must hold the lock. */
static mo_pooled *reusable_event(mo_stream_pool *pool, int device) {
  mo_pooled *forgotten = NULL;
  size_t count = 0, tried = 0;
  for (size_t i = 0; i < pool->handle_count; ++i) {
    mo_pooled *event = pool->handles[(pool->cursor + i) % pool->handle_count];
    if (!event->is_event || event->device != device)
      continue;
    if (!event->references)
      return event;
    if (++count > EVENTS_PER_DEVICE && (forgotten || tried == EVENTS_TO_TRY))
      break;
    if (!forgotten && event->is_recorded && tried < EVENTS_TO_TRY) {
      ++tried;
      if (pool->api->query_event(event->raw) == 0)
        forgotten = event;
    }
  }
  ++pool->cursor;
  return count < EVENTS_PER_DEVICE ? NULL : forgotten;
}

void *mo_pool_create_event(mo_stream_pool *pool) {
  int device = current_device(pool);
  mo_lock(&pool->lock);
  mo_pooled *event = reusable_event(pool, device);
  if (!event) {
    void *raw;
    API_CHECK(pool, pool->api->create_event(&raw, EVENT_DISABLE_TIMING), "EventCreateWithFlags",
              "making an event");
    event = add_handle(pool, raw, device, true);
  }
  ++event->references;
  event->is_recorded = false;
  mo_unlock(&pool->lock);
  return event->raw;
}

/* If the event is a caller's stream, there is nothing to release. If it is a pooled stream that was used as a
 * token, the stream is released. */
void mo_pool_destroy_event(mo_stream_pool *pool, void *event) { release_handle(pool, event); }

void mo_pool_record_event(mo_stream_pool *pool, void *event, void *stream) {
  API_CHECK(pool, pool->api->record_event(event, stream), "EventRecord", "recording an event");
  mo_lock(&pool->lock);
  mo_pooled *found = find_handle(pool, event);
  if (found)
    found->is_recorded = true;
  mo_unlock(&pool->lock);
}

void mo_pool_wait_event(mo_stream_pool *pool, void *stream, void *event) {
  void *waited = event;
  if (!is_event(pool, event)) {
    waited = mo_pool_create_event(pool);
    mo_pool_record_event(pool, waited, event);
  }
  API_CHECK(pool, pool->api->wait_event(stream, waited, 0), "StreamWaitEvent",
            "waiting for an event");
  if (waited != event)
    mo_pool_destroy_event(pool, waited);
}
