/* Internal declarations of the OpenCL backend. */
#ifndef SYCL_H
#define SYCL_H

#include "mgpu.h"
#include "sycl_api.h"

/* The functions of libOpenCL, valid after mo_sycl_load has returned NULL. */
extern opencl_functions mo_cl MO_INTERNAL;

/* Returns NULL, or the reason why libOpenCL cannot be used. */
MO_INTERNAL const char *mo_sycl_load(void);

typedef struct mo_sycl_platform {
  cl_platform_id raw;
  usm_functions usm;
  cl_context context; /* for all its usable devices */
} mo_sycl_platform;

typedef struct mo_sycl_device {
  cl_device_id raw;
  mo_sycl_platform *platform;
  uint64_t type;
  cl_command_queue queue; /* for work without a stream; NULL before the first use */
} mo_sycl_device;

/* The location of work. */
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
/* Returns the device of the thread, after creating the context of its platform. */
MO_INTERNAL mo_sycl_device *mo_sycl_own_device(void);
/* Returns the platform of a device, and records the device for later error messages. */
MO_INTERNAL const mo_sycl_platform *mo_sycl_use_device(cl_device_id device);
/* Returns the location of the device of the thread; its queue is NULL. */
MO_INTERNAL mo_sycl_place mo_sycl_own_place(void);
/* Returns the location of a stream. NULL means the caller's stream of the thread, or the default queue of the
 * device if the thread has none. */
MO_INTERNAL mo_sycl_place mo_sycl_place_of(void *stream);
/* The same for memory, which does not require a queue: the queue may be NULL. */
MO_INTERNAL mo_sycl_place mo_sycl_place_of_memory(void *stream);

/* Writes a text property from clGetDeviceInfo, an empty string if it is missing. */
MO_INTERNAL void mo_sycl_device_text(cl_device_id device, unsigned what, char *text, size_t size);

typedef struct mo_sycl_module {
  const char *build_options;
  const uint32_t *words;
  size_t word_count;
} mo_sycl_module;

/* Finds the kernel's name and the module that defines it. Ends the program if there is none. */
MO_INTERNAL mo_sycl_module mo_sycl_find_module(const void *stub, const mo_shape *shape,
                                               const char **name);

typedef enum mo_sycl_passing {
  PASS_VALUE,
  PASS_POINTER,
  PASS_LOCAL_MEMORY, /* dynamic workgroup memory, without an argument of the host */
  PASS_FAILURES,     /* the flag of failed assertions, without an argument of the host */
} mo_sycl_passing;

typedef struct mo_sycl_parameter {
  mo_sycl_passing passing;
  size_t size_bytes;
} mo_sycl_parameter;

typedef struct mo_sycl_signature {
  unsigned count;
  mo_sycl_parameter *parameters;
} mo_sycl_signature;

/* Reads the parameters of a kernel. Returns NULL, or an error message for the module. */
MO_INTERNAL const char *mo_sycl_read_signature(const mo_sycl_module *module, const char *kernel,
                                               mo_sycl_signature *signature);

/* Returns the flag of a context that kernels set when an assertion fails. */
MO_INTERNAL unsigned *mo_sycl_failures(const mo_sycl_place *place);
/* Ends the program if a completed kernel has set a flag. */
MO_INTERNAL void mo_sycl_check_assertions(void);

MO_INTERNAL void mo_sycl_launch(const void *stub, const mo_shape *shape, void *stream,
                                void **params);

#ifdef MLIR_OFFLOAD_HAVE_OPENMP
#define SYCL_OR_THE_CPU ", or run with MLIR_OFFLOAD_DEVICE=host"
#else
#define SYCL_OR_THE_CPU ", or compile with --offload-arch=host to run on the CPU"
#endif

/* Records the device for error messages of this thread: N of "sycl:N", -1 for a subdevice. */
MO_INTERNAL void mo_sycl_note_device(cl_device_id device, int number);
/* Report a failed call and end the program. The first function adds a description of the call. */
MO_INTERNAL MO_NORETURN void mo_sycl_stop(int status, const char *call, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
MO_INTERNAL MO_NORETURN void mo_sycl_cure(int status);
MO_INTERNAL MO_NORETURN void mo_sycl_explain_no_device(void);
MO_INTERNAL void mo_sycl_report_call(int status, const char *call);
MO_INTERNAL void mo_sycl_context_of_device(void);

/* SYCL_CHECK(status, "clFinish", "waiting for %p", p): the text is formatted only on failure. */
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

/* Flushes a queue, because OpenCL may otherwise delay its work until a thread waits for it. */
MO_INTERNAL void mo_sycl_start(cl_command_queue queue);

#endif
