/* Streams and events: those made here are pooled, a caller's own are left alone.
 *
 * What gpu-to-llvm emits never destroys a stream whose token only `gpu.wait async` consumes.
 * Sharing one between two tokens adds order and takes none away, so that beyond a limit streams
 * are shared. A handle that is not in the table is a stream of the caller: it is used and
 * synchronised, never destroyed. Where a token came in as a function argument, it is also what
 * gpu-to-llvm passes as the event.
 */
#include <pthread.h>
#include <stdlib.h>

#include "cuda.h"

enum { STREAMS_PER_DEVICE = 32, EVENTS_PER_DEVICE = 256, EVENTS_TO_TRY = 8 };

typedef struct cuda_handle {
  void *raw; /* cudaStream_t or cudaEvent_t */
  int device;
  unsigned references; /* 0: free */
  bool is_event;
  bool is_recorded; /* since this holder took the event */
} cuda_handle;

/* Handles are never removed, so that the table needs no tombstones; it is bounded by the limits
 * and by the number of events that are pending at a time. */
static pthread_mutex_t mo_handles_lock = PTHREAD_MUTEX_INITIALIZER;
static cuda_handle **mo_handles;   /* in order of creation */
static cuda_handle **mo_slots;     /* open addressing by raw */
static size_t mo_handle_count, mo_slot_count, mo_cursor;

static size_t slot_of(const void *raw) {
  size_t slot = ((uintptr_t)raw >> 4) * 0x9E3779B97F4A7C15u >> 20 & (mo_slot_count - 1);
  while (mo_slots[slot] && mo_slots[slot]->raw != raw)
    slot = (slot + 1) & (mo_slot_count - 1);
  return slot;
}

static void grow_table(void) {
  mo_slot_count = mo_slot_count ? 2 * mo_slot_count : 64;
  free(mo_slots);
  mo_slots = calloc(mo_slot_count, sizeof *mo_slots);
  mo_handles = realloc(mo_handles, mo_slot_count / 2 * sizeof *mo_handles);
  if (!mo_slots || !mo_handles) {
    mo_error("out of host memory for %zu streams and events", mo_slot_count);
    mo_cure("free host memory");
  }
  for (size_t i = 0; i < mo_handle_count; ++i)
    mo_slots[slot_of(mo_handles[i]->raw)] = mo_handles[i];
}

static cuda_handle *add_handle(void *raw, int device, bool is_event) {
  cuda_handle *added = malloc(sizeof *added);
  if (2 * (mo_handle_count + 1) > mo_slot_count)
    grow_table();
  if (!added) {
    mo_error("out of host memory for a stream");
    mo_cure("free host memory");
  }
  *added = (cuda_handle){raw, device, 0, is_event, false};
  mo_handles[mo_handle_count++] = added;
  mo_slots[slot_of(raw)] = added;
  return added;
}

/* Returns the handle made here, or NULL for one of the caller's. Needs the lock. */
static cuda_handle *find_handle(const void *raw) {
  return mo_slot_count && raw ? mo_slots[slot_of(raw)] : NULL;
}

static bool is_event(const void *raw) {
  pthread_mutex_lock(&mo_handles_lock);
  const cuda_handle *found = find_handle(raw);
  bool result = found && found->is_event;
  pthread_mutex_unlock(&mo_handles_lock);
  return result;
}

static int current_device(void) {
  int device;
  CUDA_CHECK(cudaGetDevice(&device), "cudaGetDevice", "choosing a stream");
  return device;
}

/* The program may have ended CUDA itself, by cudaDeviceReset for example. */
static bool is_end_of_cuda(int status) {
  return status == CUDA_RUNTIME_UNLOADING || status == CUDA_CONTEXT_IS_DESTROYED ||
         status == CUDA_DEVICE_UNINITIALIZED || status == CUDA_INVALID_HANDLE;
}

/* Errors of work that nothing waited for would be lost with the process. */
static void check_streams_at_exit(void) {
  for (size_t i = 0; i < mo_handle_count; ++i) {
    if (mo_handles[i]->is_event)
      continue;
    int status = cudaStreamSynchronize(mo_handles[i]->raw);
    if (status != CUDA_SUCCESS && !is_end_of_cuda(status))
      mo_cuda_stop(status, "cudaStreamSynchronize", "waiting for unfinished work at exit");
  }
}

static void register_exit_check(void) { atexit(check_streams_at_exit); }

/* Returns a free stream of the device, or the next one in turn if there are enough of them, or
 * NULL. Needs the lock. */
static cuda_handle *reusable_stream(int device) {
  size_t count = 0;
  cuda_handle *shared = NULL;
  for (size_t i = 0; i < mo_handle_count; ++i) {
    cuda_handle *stream = mo_handles[i];
    if (stream->is_event || stream->device != device)
      continue;
    if (!stream->references)
      return stream;
    if (!shared || stream->references < shared->references)
      shared = stream;
    ++count;
  }
  return count < STREAMS_PER_DEVICE ? NULL : shared;
}

void *mo_cuda_create_stream(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_exit_check);
  int device = current_device();
  pthread_mutex_lock(&mo_handles_lock);
  cuda_handle *stream = reusable_stream(device);
  if (!stream) {
    void *raw;
    CUDA_CHECK(cudaStreamCreateWithFlags(&raw, CUDA_STREAM_NON_BLOCKING),
               "cudaStreamCreateWithFlags", "making a stream");
    stream = add_handle(raw, device, false);
  }
  ++stream->references;
  pthread_mutex_unlock(&mo_handles_lock);
  return stream->raw;
}

static void release_handle(void *raw) {
  pthread_mutex_lock(&mo_handles_lock);
  cuda_handle *found = find_handle(raw);
  if (found && found->references)
    --found->references;
  pthread_mutex_unlock(&mo_handles_lock);
}

void mo_cuda_destroy_stream(void *stream) {
  int status = is_event(stream) ? CUDA_SUCCESS : cudaStreamQuery(stream);
  if (status != CUDA_NOT_READY)
    CUDA_CHECK(status, "cudaStreamQuery", "giving up a stream");
  release_handle(stream);
}

void mo_cuda_synchronize(void *raw) {
  if (is_event(raw))
    CUDA_CHECK(cudaEventSynchronize(raw), "cudaEventSynchronize", "waiting for an event");
  else
    CUDA_CHECK(cudaStreamSynchronize(raw), "cudaStreamSynchronize", "waiting for a stream");
}

/* Returns an event of the device that nobody holds, or one whose holder seems to have forgotten
 * it: recorded, and complete, so that whoever still waits for it waits for nothing or for a later
 * record, which is right too. Needs the lock. */
static cuda_handle *reusable_event(int device) {
  cuda_handle *forgotten = NULL;
  size_t count = 0, tried = 0;
  for (size_t i = 0; i < mo_handle_count; ++i) {
    cuda_handle *event = mo_handles[(mo_cursor + i) % mo_handle_count];
    if (!event->is_event || event->device != device)
      continue;
    if (!event->references)
      return event;
    if (++count > EVENTS_PER_DEVICE && (forgotten || tried == EVENTS_TO_TRY))
      break;
    if (!forgotten && event->is_recorded && tried < EVENTS_TO_TRY) {
      ++tried;
      if (cudaEventQuery(event->raw) == CUDA_SUCCESS)
        forgotten = event;
    }
  }
  ++mo_cursor;
  return count < EVENTS_PER_DEVICE ? NULL : forgotten;
}

void *mo_cuda_create_event(void) {
  int device = current_device();
  pthread_mutex_lock(&mo_handles_lock);
  cuda_handle *event = reusable_event(device);
  if (!event) {
    void *raw;
    CUDA_CHECK(cudaEventCreateWithFlags(&raw, CUDA_EVENT_DISABLE_TIMING),
               "cudaEventCreateWithFlags", "making an event");
    event = add_handle(raw, device, true);
  }
  ++event->references;
  event->is_recorded = false;
  pthread_mutex_unlock(&mo_handles_lock);
  return event->raw;
}

/* A caller's stream stands for its event: nothing to give up. A stream made here, handed on as a
 * token, is given up with the token. */
void mo_cuda_destroy_event(void *event) { release_handle(event); }

void mo_cuda_record_event(void *event, void *stream) {
  CUDA_CHECK(cudaEventRecord(event, stream), "cudaEventRecord", "recording an event");
  pthread_mutex_lock(&mo_handles_lock);
  cuda_handle *found = find_handle(event);
  if (found)
    found->is_recorded = true;
  pthread_mutex_unlock(&mo_handles_lock);
}

void mo_cuda_wait_event(void *stream, void *event) {
  void *waited = event;
  if (!is_event(event)) {
    waited = mo_cuda_create_event();
    mo_cuda_record_event(waited, event);
  }
  CUDA_CHECK(cudaStreamWaitEvent(stream, waited, 0), "cudaStreamWaitEvent", "waiting for an event");
  if (waited != event)
    mo_cuda_destroy_event(waited);
}
