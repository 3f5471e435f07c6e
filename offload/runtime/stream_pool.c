/* Streams and events: those made here are pooled, a caller's own are left alone.
 *
 * What gpu-to-llvm emits never destroys a stream whose token only `gpu.wait async` consumes.
 * Sharing one between two tokens adds order and takes none away, so that beyond a limit streams
 * are shared. A handle that is not in the table is a stream of the caller: it is used and
 * synchronised, never destroyed. Where a token came in as a function argument, it is also what
 * gpu-to-llvm passes as the event.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "catch.h"
#include "stream_pool.h"

enum { STREAMS_PER_DEVICE = 32, EVENTS_PER_DEVICE = 256, EVENTS_TO_TRY = 8 };
/* The CUDA and the HIP runtime give these the same numbers. */
enum { STREAM_NON_BLOCKING = 1, EVENT_DISABLE_TIMING = 2 };

struct mo_pooled {
  void *raw; /* a stream or an event of the API */
  int device;
  unsigned references; /* 0: free */
  bool is_event;
  bool is_recorded; /* since this holder took the event */
};

/* Reports the call of the API, named without its prefix, where it failed. */
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

/* Returns the handle made here, or NULL for one of the caller's. Needs the lock. */
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

/* Returns the handle of a number, NULL behind the last one. */
static mo_pooled *nth_handle(mo_stream_pool *pool, size_t number) {
  mo_lock(&pool->lock);
  mo_pooled *handle = number < pool->handle_count ? pool->handles[number] : NULL;
  mo_unlock(&pool->lock);
  return handle;
}

/* Errors of work that nothing waited for would be lost with the process. Other threads may still
 * make streams. A child has no work of its own: the API does not work there. */
void mo_pool_check_at_exit(mo_stream_pool *pool) {
  mo_pooled *handle;
  if (pool->owner != getpid())
    return;
  for (size_t i = 0; (handle = nth_handle(pool, i)); ++i) {
    if (handle->is_event)
      continue;
    int status = pool->api->synchronize_stream(handle->raw);
    /* The program may have ended the API itself, by cudaDeviceReset for example. */
    if (status != 0 && !pool->api->is_end(status))
      stop(pool->api, status, "StreamSynchronize", "waiting for unfinished work at exit");
  }
}

/* Returns a free stream of the device that has no work left, for work behind other work would
 * wait for it without need; or the next one in turn of those with the fewest holders if there are
 * enough of them, or NULL. Needs the lock. */
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

/* Returns an event of the device that nobody holds, or one whose holder seems to have forgotten
 * it: recorded, and complete, so that whoever still waits for it waits for nothing or for a later
 * record, which is right too. Needs the lock. */
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

/* A caller's stream represents its event: nothing to give up. A stream made here, handed on as a
 * token, is given up with the token. */
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
