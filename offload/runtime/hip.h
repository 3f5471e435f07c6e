/* Internal declarations of the HIP backend. */
#ifndef HIP_H
#define HIP_H

#include "hip_api.h"
#include "mgpu.h"

/* Report a failed call and end the program. The first function adds a description of the call, the
 * second one the kernel and the shape of the launch. */
MO_INTERNAL MO_NORETURN void mo_hip_stop(int status, const char *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
MO_INTERNAL MO_NORETURN void mo_hip_stop_launch(int status, const char *call, const void *address,
                                              const mo_shape *shape);
MO_INTERNAL MO_NORETURN void mo_hip_explain_no_device(void);

/* HIP_CHECK(status, "hipFree", "freeing %p", p): the text is formatted only on failure. */
#define HIP_CHECK(status, call, ...)           \
  do {                                         \
    int status_ = (status);                    \
    if (status_ != HIP_SUCCESS)                \
      mo_hip_stop(status_, call, __VA_ARGS__); \
  } while (0)

MO_INTERNAL void *mo_hip_create_stream(void);
MO_INTERNAL void mo_hip_destroy_stream(void *stream);
MO_INTERNAL void mo_hip_synchronize(void *handle);
MO_INTERNAL void mo_hip_wait_event(void *stream, void *event);
MO_INTERNAL void *mo_hip_create_event(void);
MO_INTERNAL void mo_hip_destroy_event(void *event);
MO_INTERNAL void mo_hip_record_event(void *event, void *stream);

#endif
