/* The streams and events of the CUDA runtime API. */
#include <stdlib.h>

#include "cuda.h"
#include "stream_pool.h"

static bool is_end_of_cuda(int status) {
  return status == CUDA_RUNTIME_UNLOADING || status == CUDA_CONTEXT_IS_DESTROYED ||
         status == CUDA_DEVICE_UNINITIALIZED || status == CUDA_INVALID_HANDLE;
}

static void register_cuda_exit_check(void);

static const mo_stream_api mo_cuda_streams = {
    .prefix = "cuda",
    .not_ready = CUDA_NOT_READY,
    .get_device = cudaGetDevice,
    .create_stream = cudaStreamCreateWithFlags,
    .synchronize_stream = cudaStreamSynchronize,
    .query_stream = cudaStreamQuery,
    .wait_event = cudaStreamWaitEvent,
    .create_event = cudaEventCreateWithFlags,
    .record_event = cudaEventRecord,
    .synchronize_event = cudaEventSynchronize,
    .query_event = cudaEventQuery,
    .is_end = is_end_of_cuda,
    .register_exit_check = register_cuda_exit_check,
    .stop = mo_cuda_stop,
};

static mo_stream_pool mo_cuda_pool = MO_STREAM_POOL(&mo_cuda_streams);

static void check_cuda_at_exit(void) { mo_pool_check_at_exit(&mo_cuda_pool); }
static void register_cuda_exit_check(void) { atexit(check_cuda_at_exit); }

void *mo_cuda_create_stream(void) { return mo_pool_create_stream(&mo_cuda_pool); }
void mo_cuda_destroy_stream(void *stream) { mo_pool_destroy_stream(&mo_cuda_pool, stream); }
void mo_cuda_synchronize(void *handle) { mo_pool_synchronize(&mo_cuda_pool, handle); }
void mo_cuda_wait_event(void *stream, void *event) {
  mo_pool_wait_event(&mo_cuda_pool, stream, event);
}
void *mo_cuda_create_event(void) { return mo_pool_create_event(&mo_cuda_pool); }
void mo_cuda_destroy_event(void *event) { mo_pool_destroy_event(&mo_cuda_pool, event); }
void mo_cuda_record_event(void *event, void *stream) {
  mo_pool_record_event(&mo_cuda_pool, event, stream);
}
