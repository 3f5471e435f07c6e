/* Internal declarations of the CUDA backend. */
#ifndef CUDA_H
#define CUDA_H

#include "cuda_api.h"
#include "mgpu.h"

/* Report a failed call and end the program. The first function adds a description of the call, the
 * second one the kernel and the shape of the launch. */
MO_INTERNAL MO_NORETURN void mo_cuda_stop(int status, const char *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
MO_INTERNAL MO_NORETURN void mo_cuda_stop_launch(int status, const char *call, const void *stub,
                                               const mo_shape *shape);
MO_INTERNAL MO_NORETURN void mo_cuda_explain_no_device(void);

/* CUDA_CHECK(status, "cudaFree", "freeing %p", p): the text is formatted only on failure. */
#define CUDA_CHECK(status, call, ...)          \
  do {                                         \
    int status_ = (status);                    \
    if (status_ != CUDA_SUCCESS)               \
      mo_cuda_stop(status_, call, __VA_ARGS__); \
  } while (0)

/* Returns a function of the driver API, which is not linked. */
MO_INTERNAL void *mo_cuda_driver_function(const char *name);

MO_INTERNAL void *mo_cuda_create_stream(void);
MO_INTERNAL void mo_cuda_destroy_stream(void *stream);
MO_INTERNAL void mo_cuda_synchronize(void *handle);
MO_INTERNAL void mo_cuda_wait_event(void *stream, void *event);
MO_INTERNAL void *mo_cuda_create_event(void);
MO_INTERNAL void mo_cuda_destroy_event(void *event);
MO_INTERNAL void mo_cuda_record_event(void *event, void *stream);

#endif
