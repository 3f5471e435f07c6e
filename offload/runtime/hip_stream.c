/* The streams and events of the HIP runtime API. */
#include <stdlib.h>

#include "hip.h"
#include "stream_pool.h"

static bool is_end_of_hip(int status) {
  return status == HIP_DEINITIALIZED || status == HIP_CONTEXT_IS_DESTROYED ||
         status == HIP_INVALID_CONTEXT || status == HIP_INVALID_HANDLE;
}

static void register_hip_exit_check(void);

static const mo_stream_api mo_hip_streams = {
    .prefix = "hip",
    .not_ready = HIP_NOT_READY,
    .get_device = hipGetDevice,
    .create_stream = hipStreamCreateWithFlags,
    .synchronize_stream = hipStreamSynchronize,
    .query_stream = hipStreamQuery,
    .wait_event = hipStreamWaitEvent,
    .create_event = hipEventCreateWithFlags,
    .record_event = hipEventRecord,
    .synchronize_event = hipEventSynchronize,
    .query_event = hipEventQuery,
    .is_end = is_end_of_hip,
    .register_exit_check = register_hip_exit_check,
    .stop = mo_hip_stop,
};

static mo_stream_pool mo_hip_pool = MO_STREAM_POOL(&mo_hip_streams);

static void check_hip_at_exit(void) { mo_pool_check_at_exit(&mo_hip_pool); }
static void register_hip_exit_check(void) { atexit(check_hip_at_exit); }

void *mo_hip_create_stream(void) { return mo_pool_create_stream(&mo_hip_pool); }
void mo_hip_destroy_stream(void *stream) { mo_pool_destroy_stream(&mo_hip_pool, stream); }
void mo_hip_synchronize(void *handle) { mo_pool_synchronize(&mo_hip_pool, handle); }
void mo_hip_wait_event(void *stream, void *event) {
  mo_pool_wait_event(&mo_hip_pool, stream, event);
}
void *mo_hip_create_event(void) { return mo_pool_create_event(&mo_hip_pool); }
void mo_hip_destroy_event(void *event) { mo_pool_destroy_event(&mo_hip_pool, event); }
void mo_hip_record_event(void *event, void *stream) {
  mo_pool_record_event(&mo_hip_pool, event, stream);
}
