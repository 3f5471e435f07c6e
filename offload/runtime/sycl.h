/* Between the files of the OpenCL backend. */
#ifndef SYCL_H
#define SYCL_H

#include "mgpu.h"
#include "sycl_api.h"

/* libOpenCL's functions; there once mo_sycl_load has returned NULL. */
extern opencl_functions mo_cl MO_INTERNAL;

/* Returns NULL, or what is wrong with libOpenCL on this machine. */
MO_INTERNAL const char *mo_sycl_load(void);

typedef struct mo_sycl_platform {
  cl_platform_id raw;
  usm_functions usm;
  cl_context context; /* for all its devices that can be used */
} mo_sycl_platform;

typedef struct mo_sycl_device {
  cl_device_id raw;
  mo_sycl_platform *platform;
  uint64_t type;
  cl_command_queue queue; /* for work that names no stream; NULL till then */
} mo_sycl_device;

/* Where a piece of work runs. */
typedef struct mo_sycl_place {
  const mo_sycl_platform *platform;
  cl_context context;
  cl_device_id device;
  cl_command_queue queue;
} mo_sycl_place;

MO_INTERNAL int mo_sycl_count_devices(void);
MO_INTERNAL int mo_sycl_count_gpus(void);
MO_INTERNAL void mo_sycl_set_device(int index);
MO_INTERNAL int mo_sycl_find_device(mo_device_class of, int number);
MO_INTERNAL int mo_sycl_device_index(void);
/* Returns the thread's device; its platform has a context. */
MO_INTERNAL mo_sycl_device *mo_sycl_own_device(void);
/* Returns the platform of the device of a stream, which errors name from now on. */
MO_INTERNAL const mo_sycl_platform *mo_sycl_use_device(cl_device_id device);
/* Returns the place of the thread's device; its queue is NULL. */
MO_INTERNAL mo_sycl_place mo_sycl_own_place(void);
/* Returns the place of a stream; NULL means the caller's stream of the thread, else the device's
 * own queue. */
MO_INTERNAL mo_sycl_place mo_sycl_place_of(void *stream);
/* Likewise for memory, which needs no queue: the place's may be NULL. */
MO_INTERNAL mo_sycl_place mo_sycl_place_of_memory(void *stream);

/* Writes an answer of clGetDeviceInfo that is text; empty where there is none. */
MO_INTERNAL void mo_sycl_device_text(cl_device_id device, unsigned what, char *text, size_t size);

typedef struct mo_sycl_module {
  const char *build_options;
  const uint32_t *words;
  size_t word_count;
} mo_sycl_module;

/* Finds the kernel's name and the module that has it; ends the program where there is none. */
MO_INTERNAL mo_sycl_module mo_sycl_find_module(const void *stub, const mo_shape *shape,
                                               const char **name);

typedef enum mo_sycl_passing {
  PASS_VALUE,
  PASS_POINTER,
  PASS_LOCAL_MEMORY, /* the launch's dynamic shared memory: the host passes nothing for it */
  PASS_FAILURES,     /* the flag of failed assertions: nor for this */
} mo_sycl_passing;

typedef struct mo_sycl_parameter {
  mo_sycl_passing passing;
  size_t size_bytes;
} mo_sycl_parameter;

typedef struct mo_sycl_signature {
  unsigned count;
  mo_sycl_parameter *parameters;
} mo_sycl_signature;

/* Reads the parameters of a kernel; returns NULL, or what is wrong with the module. */
MO_INTERNAL const char *mo_sycl_read_signature(const mo_sycl_module *module, const char *kernel,
                                               mo_sycl_signature *signature);

/* Returns the flag that kernels set when an assertion fails, one for each context. */
MO_INTERNAL unsigned *mo_sycl_failures(const mo_sycl_place *place);
/* Ends the program if a kernel that has ended set one. */
MO_INTERNAL void mo_sycl_check_assertions(void);

MO_INTERNAL void mo_sycl_launch(const void *stub, const mo_shape *shape, void *stream,
                                void **params);

#ifdef MLIR_OFFLOAD_HAVE_OPENMP
#define SYCL_OR_THE_CPU ", or run with MLIR_OFFLOAD_DEVICE=host"
#else
#define SYCL_OR_THE_CPU ", or compile with --offload-arch=host to run on the CPU"
#endif

/* Notes the device that errors of this thread name: N of "sycl:N", -1 for a part of a device. */
MO_INTERNAL void mo_sycl_note_device(cl_device_id device, int number);
/* Reports a failed call and ends the program. The first form adds what the call was about. */
MO_INTERNAL MO_NORETURN void mo_sycl_stop(int status, const char *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
MO_INTERNAL MO_NORETURN void mo_sycl_cure(int status);
MO_INTERNAL MO_NORETURN void mo_sycl_explain_no_device(void);
MO_INTERNAL void mo_sycl_report_call(int status, const char *call);
MO_INTERNAL void mo_sycl_context_of_device(void);

/* SYCL_CHECK(status, "clFinish", "waiting for %p", p): the text is made only on failure. */
#define SYCL_CHECK(status, call, ...)           \
  do {                                          \
    int status_ = (status);                     \
    if (status_ != CL_SUCCESS)                  \
      mo_sycl_stop(status_, call, __VA_ARGS__); \
  } while (0)

MO_INTERNAL void *mo_sycl_create_stream(void);
MO_INTERNAL void mo_sycl_destroy_stream(void *stream);
MO_INTERNAL void mo_sycl_synchronize(void *handle);
MO_INTERNAL void mo_sycl_wait_event(void *stream, void *event);
MO_INTERNAL void *mo_sycl_create_event(void);
MO_INTERNAL void mo_sycl_destroy_event(void *event);
MO_INTERNAL void mo_sycl_record_event(void *event, void *stream);

/* Starts what was put into a queue: OpenCL may hold it back till somebody waits for it. */
MO_INTERNAL void mo_sycl_start(cl_command_queue queue);

#endif
