/* Streams are in-order command queues. OpenCL creates an event when work is enqueued, but in the runtime's contract
 * events exist before they are recorded. Therefore an event here contains the OpenCL event of its last marker. */
#include <pthread.h>
#include <stdlib.h>

#include "catch.h"
#include "mlir_offload.h"
#include "stream_pool.h"
#include "sycl.h"

static pthread_mutex_t mo_sycl_queue_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct sycl_event {
  pthread_mutex_t lock;
  cl_event marker; /* NULL: never recorded */
} sycl_event;

/* A stream of the pool, so that the exit check waits for it too. */
static cl_command_queue own_queue(void) {
  mo_sycl_device *device = mo_sycl_own_device();
  pthread_mutex_lock(&mo_sycl_queue_lock);
  cl_command_queue queue = device->queue;
  pthread_mutex_unlock(&mo_sycl_queue_lock);
  if (queue)
    return queue;
  cl_command_queue made = mo_sycl_create_stream();
  pthread_mutex_lock(&mo_sycl_queue_lock);
  if (!device->queue)
    device->queue = made;
  queue = device->queue;
  pthread_mutex_unlock(&mo_sycl_queue_lock);
  return queue;
}

static void ask_queue(cl_command_queue queue, unsigned what, void *answer, size_t size) {
  SYCL_CHECK(mo_cl.clGetCommandQueueInfo(queue, what, size, answer, NULL),
             "clGetCommandQueueInfo", "looking at the stream %p", (void *)queue);
}

mo_sycl_place mo_sycl_place_of(void *stream) {
  mo_sycl_place place;
  uint64_t properties;
  place.queue = stream ? stream : mlir_offload_get_stream();
  if (!place.queue)
    place.queue = own_queue();
  ask_queue(place.queue, CL_QUEUE_CONTEXT, &place.context, sizeof place.context);
  ask_queue(place.queue, CL_QUEUE_DEVICE, &place.device, sizeof place.device);
  ask_queue(place.queue, CL_QUEUE_PROPERTIES, &properties, sizeof properties);
  place.platform = mo_sycl_use_device(place.device);
  if (properties & CL_QUEUE_OUT_OF_ORDER) {
    mo_error("the caller's stream is a queue that runs its commands out of order");
    mo_hint("make it without CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE");
  }
  return place;
}

mo_sycl_place mo_sycl_place_of_memory(void *stream) {
  return stream || mlir_offload_get_stream() ? mo_sycl_place_of(stream) : mo_sycl_own_place();
}

/* Returns the retained marker, which the caller must release, or NULL. */
static cl_event take_marker(sycl_event *event) {
  mo_lock(&event->lock);
  cl_event marker = event->marker;
  if (marker)
    SYCL_CHECK(mo_cl.clRetainEvent(marker), "clRetainEvent", "looking at an event");
  mo_unlock(&event->lock);
  return marker;
}

static void release_marker(cl_event marker) {
  if (marker)
    SYCL_CHECK(mo_cl.clReleaseEvent(marker), "clReleaseEvent", "giving up an event");
}

void mo_sycl_start(cl_command_queue queue) {
  SYCL_CHECK(mo_cl.clFlush(queue), "clFlush", "starting work");
}

/* The functions that the pool calls. A failure ends the program here, with the name of the OpenCL function. */
static int current_sycl_device(int *device) {
  *device = mo_sycl_device_index();
  return CL_SUCCESS;
}

static int create_sycl_queue(void **stream, unsigned flags) {
  mo_sycl_place place = mo_sycl_own_place();
  int status;
  (void)flags;
  *stream = mo_cl.clCreateCommandQueueWithProperties(place.context, place.device, NULL, &status);
  SYCL_CHECK(status, "clCreateCommandQueueWithProperties", "making a stream");
  return CL_SUCCESS;
}

static int finish_sycl_queue(void *stream) {
  mo_sycl_place place = mo_sycl_place_of(stream);
  SYCL_CHECK(mo_cl.clFinish(place.queue), "clFinish", "waiting for a stream");
  return CL_SUCCESS;
}

/* OpenCL cannot query whether a queue is empty. Errors are reported when a thread waits for the queue. */
static int start_sycl_queue(void *stream) {
  mo_sycl_start(mo_sycl_place_of(stream).queue);
  return CL_SUCCESS;
}

static int create_sycl_event(void **event, unsigned flags) {
  sycl_event *made = calloc(1, sizeof *made);
  (void)flags;
  if (!made) {
    mo_error("out of host memory for an event");
    mo_hint("free host memory");
  }
  pthread_mutex_init(&made->lock, NULL);
  *event = made;
  return CL_SUCCESS;
}

static int record_sycl_event(void *handle, void *stream) {
  sycl_event *event = handle;
  cl_command_queue queue = mo_sycl_place_of(stream).queue;
  cl_event made, previous;
  SYCL_CHECK(mo_cl.clEnqueueMarkerWithWaitList(queue, 0, NULL, &made),
             "clEnqueueMarkerWithWaitList", "recording an event");
  /* Otherwise a queue that waits for the marker could wait forever. */
  mo_sycl_start(queue);
  pthread_mutex_lock(&event->lock);
  previous = event->marker;
  event->marker = made;
  pthread_mutex_unlock(&event->lock);
  release_marker(previous);
  return CL_SUCCESS;
}

static void wait_for_marker(cl_event marker) {
  SYCL_CHECK(mo_cl.clWaitForEvents(1, &marker), "clWaitForEvents", "waiting for an event");
}

/* The host waits, because queues of different contexts, such as the default one and a caller's, cannot wait for each
 * other. */
static int wait_for_sycl_event(void *stream, void *event, unsigned flags) {
  mo_sycl_place place = mo_sycl_place_of(stream);
  cl_event marker = take_marker(event);
  cl_context context;
  (void)flags;
  if (!marker)
    return CL_SUCCESS;
  SYCL_CHECK(mo_cl.clGetEventInfo(marker, CL_EVENT_CONTEXT, sizeof context, &context, NULL),
             "clGetEventInfo", "looking at an event");
  if (context == place.context)
    SYCL_CHECK(mo_cl.clEnqueueBarrierWithWaitList(place.queue, 1, &marker, NULL),
               "clEnqueueBarrierWithWaitList", "letting a stream wait for an event");
  else
    wait_for_marker(marker);
  release_marker(marker);
  return CL_SUCCESS;
}

static int finish_sycl_event(void *event) {
  cl_event marker = take_marker(event);
  if (marker)
    wait_for_marker(marker);
  release_marker(marker);
  return CL_SUCCESS;
}

enum { EVENT_PENDING = 1 };

static int query_sycl_event(void *event) {
  cl_event marker = take_marker(event);
  int execution = CL_COMPLETE;
  if (marker)
    SYCL_CHECK(mo_cl.clGetEventInfo(marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof execution,
                                    &execution, NULL),
               "clGetEventInfo", "looking at an event");
  release_marker(marker);
  return execution > CL_COMPLETE ? EVENT_PENDING : execution;
}

static void register_sycl_exit_check(void);

static const mo_stream_api mo_sycl_streams = {
    .prefix = "",
    .not_ready = EVENT_PENDING,
    .get_device = current_sycl_device,
    .create_stream = create_sycl_queue,
    .synchronize_stream = finish_sycl_queue,
    .query_stream = start_sycl_queue,
    .wait_event = wait_for_sycl_event,
    .create_event = create_sycl_event,
    .record_event = record_sycl_event,
    .synchronize_event = finish_sycl_event,
    .query_event = query_sycl_event,
    .register_exit_check = register_sycl_exit_check,
    .stop = mo_sycl_stop,
};

static mo_stream_pool mo_sycl_pool = MO_STREAM_POOL(&mo_sycl_streams);

static void check_sycl_at_exit(void) {
  mo_pool_check_at_exit(&mo_sycl_pool);
  mo_sycl_check_assertions();
}
static void register_sycl_exit_check(void) { atexit(check_sycl_at_exit); }

void *mo_sycl_create_stream(void) { return mo_pool_create_stream(&mo_sycl_pool); }
void mo_sycl_destroy_stream(void *stream) { mo_pool_destroy_stream(&mo_sycl_pool, stream); }
void mo_sycl_synchronize(void *handle) {
  mo_pool_synchronize(&mo_sycl_pool, handle);
  mo_sycl_check_assertions();
}
void mo_sycl_wait_event(void *stream, void *event) {
  mo_pool_wait_event(&mo_sycl_pool, stream, event);
}
void *mo_sycl_create_event(void) { return mo_pool_create_event(&mo_sycl_pool); }
void mo_sycl_destroy_event(void *event) { mo_pool_destroy_event(&mo_sycl_pool, event); }
void mo_sycl_record_event(void *event, void *stream) {
  mo_pool_record_event(&mo_sycl_pool, event, stream);
}
