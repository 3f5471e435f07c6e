/* Internal declarations of the runtime: the backends of the mgpu* functions, and error reporting.
 *
 * The contract of the mgpu* functions, which compiled host code calls.
 *
 * Threads: any thread may call any function at any time. Each call uses the device of the calling thread.
 *
 * Errors: each function returns only if it succeeded. Otherwise the runtime reports the error and ends the
 * program. Errors of asynchronous work are reported by a later call, at the latest by the exit check,
 * which waits for the streams of the pool in the process that created them.
 *
 * Fork: a child process may launch on the CPU. A fork waits for threads that are inside libomptarget or the
 * fallback, not for kernels. If a child uses a GPU or OpenCL that its parent has used, the runtime reports an
 * error before it takes a lock or calls the API.
 *
 * Exit: if threads are in kernels on the CPU when the program exits, their images and the workers stay loaded.
 * Launches of threads other than the exiting one do not return. A library must not be unloaded while its
 * functions run. Unloading it releases all its resources, except that libomptarget keeps its images while other
 * libraries have images.
 *
 *   mgpuStreamCreate         returns the caller's stream, if the thread has one, otherwise a stream of the pool,
 *                            which never waits for the legacy default stream
 *   mgpuStreamDestroy        returns a stream of the pool; work on it continues. Ignores others
 *   mgpuStreamSynchronize    waits for the stream, or for the event or stream that is used as a token
 *   mgpuStreamWaitEvent      later work on the stream waits; the host does not
 *   mgpuEventCreate, -Destroy, -Synchronize, -Record
 *                            events without timing, of the pool. A caller's stream may be used as an event
 *   mgpuMemAlloc             in the order of the stream. Without a stream, without memory pools and for
 *                            host_shared memory: available when the call returns. host_shared is managed
 *                            memory, whose pages move when they are touched: the runtime does not know
 *                            which parameters are pointers and prefetches nothing
 *   mgpuMemFree              in the order of the stream; the host waits for the stream, and the API for the
 *                            device, only if the memory is not from a pool. Without a stream, work that uses
 *                            the memory must have completed, as for free(). Another thread or library than
 *                            the allocating one may free memory
 *   mgpuMemcpy, mgpuMemset16, mgpuMemset32, mgpuMemcpyMemRef, mgpuMemsetMemRef
 *                            in the order of the stream; the memory must exist until the work is complete
 *   mgpuMemHostRegister, -Unregister, ...MemRef
 *                            when the call returns, for all devices
 *   mgpuLaunchKernel, -ClusterKernel, -KernelCooperative
 *                            in the order of the stream; the parameters are read before the call returns
 *   mgpuSetDefaultDevice     for the calling thread, until the next call
 *
 * On the CPU each of these is complete when it returns.
 */
#ifndef MGPU_H
#define MGPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mo_launch.h"

/* With --embed-runtime, each object contains the runtime. The linker keeps the first definition of each
 * weak function. */
#ifdef MLIR_OFFLOAD_EMBEDDED
#define MO_LINKAGE weak,
#else
#define MO_LINKAGE
#endif

/* mgpu*: called by lowered code. Bound within the program or library that contains them, because each
 * has its own set of backends. */
#define MO_CONTRACT __attribute__((MO_LINKAGE visibility("hidden")))
/* mlir_offload_*: one copy for the whole process. */
#define MO_PUBLIC __attribute__((MO_LINKAGE visibility("default"), noinline))
/* Shared by the files of the runtime. */
#define MO_INTERNAL __attribute__((MO_LINKAGE visibility("hidden")))
/* Unlike _Noreturn, this is part of the type, so that it also applies to function pointers. */
#define MO_NORETURN __attribute__((noreturn))

typedef struct mo_shape {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3]; /* 0, 0, 0: no clusters */
  uint32_t dynamic_shared;
  bool is_cooperative;
} mo_shape;

/* The arguments of cuTensorMapEncodeTiled. */
typedef struct mo_tensor_encoding {
  void *map;
  int32_t type;
  uint32_t rank, element_bytes;
  void *address;
  const uint64_t *sizes, *strides;
  const uint32_t *box, *element_strides;
  int32_t interleave, swizzle, promotion, fill;
} mo_tensor_encoding;

typedef enum mo_device_class { MO_GPU, MO_ACCELERATOR, MO_CPU } mo_device_class;

/* Streams and events are handles of the backend's API, so that handles of a caller can be used in place of
 * handles that the runtime created. */
typedef struct mo_backend {
  const char *name; /* the name in MLIR_OFFLOAD_DEVICE */
  bool survives_fork;
  int (*count_devices)(void);
  int (*count_gpus)(void); /* NULL: the backend has no GPUs */
  MO_NORETURN void (*explain_no_device)(void);
  void (*set_device)(int index);
  int (*find_device)(mo_device_class of, int number); /* NULL: all devices are of one class */

  void *(*create_stream)(void);
  void (*destroy_stream)(void *stream);
  void (*synchronize_stream)(void *stream);
  void (*wait_event)(void *stream, void *event);
  void *(*create_event)(void);
  void (*destroy_event)(void *event);
  void (*synchronize_event)(void *event);
  void (*record_event)(void *event, void *stream);

  /* OpenCL memory belongs to the context of the stream. */
  void *(*allocate)(uint64_t size_bytes, bool is_host_shared, void *stream);
  void (*release)(void *pointer, void *stream);
  void (*copy)(void *target, const void *source, size_t size_bytes, void *stream);
  /* Elements of 1, 2, 4 or 8 bytes; at least one. */
  void (*fill)(void *target, uint64_t value, size_t width, size_t count, void *stream);
  void (*register_host)(void *pointer, uint64_t size_bytes);
  void (*unregister_host)(void *pointer);
  void *(*device_pointer)(void *registered);

  /* Returns whether kernels can access this host address. NULL: they can access all. */
  bool (*reaches)(const void *pointer);

  void (*launch)(const void *stub, const mo_shape *shape, void *stream, void **params);
  /* Returns false if another backend may have the configuration of the launch. NULL: only MLIR can
   * launch the kernels of this backend. */
  bool (*launch_configured)(const void *stub, void **params);
  void (*encode_tensor_map)(const mo_tensor_encoding *of); /* NULL: not supported */
} mo_backend;

extern const mo_backend mo_cuda MO_INTERNAL;
extern const mo_backend mo_hip MO_INTERNAL;
extern const mo_backend mo_sycl MO_INTERNAL;
extern const mo_backend mo_host MO_INTERNAL;

/* Fills with 8-byte elements, with the backend's 4-byte fill and copies. */
MO_INTERNAL void mo_fill_by_copies(const mo_backend *backend, void *target, uint64_t value,
                                   size_t count, void *stream);

/* An error report consists of mo_error, any number of mo_context, and mo_hint, which ends the program with
 * MLIR_OFFLOAD_EXIT_STATUS. Only the first thread that fails prints a report. */
MO_INTERNAL void mo_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
MO_INTERNAL void mo_context(const char *format, ...) __attribute__((format(printf, 1, 2)));
MO_INTERNAL MO_NORETURN void mo_hint(const char *format, ...) __attribute__((format(printf, 1, 2)));
MO_INTERNAL void mo_context_of_launch(const void *stub, const mo_shape *shape);

/* Launches with described memrefs: see launch_memory.c. */
/* Returns whether there is nothing to launch, and if so, resets the description: the grid is empty, or in a launch
 * of an outlined loop the block. */
MO_INTERNAL bool mo_is_empty_launch(const int64_t *grid, const int64_t *block);
MO_INTERNAL void mo_launch_kernel(const mo_backend *backend, const void *stub, const mo_shape *shape,
                                  void *stream, void **params);
/* Returns the backend of the calling thread, after making its device current. */
MO_INTERNAL const mo_backend *mo_active_backend(void);
/* Makes the device of the thread current. Ends the program if it is of another kind, which does not support
 * the call. */
MO_INTERNAL void mo_require_kind(const char *name, const char *call);

/* Returns the kernel name that is registered for the stub, or NULL. */
MO_INTERNAL const char *mo_kernel_name(const void *stub);
/* The same for entries with this offload kind. */
MO_INTERNAL const char *mo_kernel_name_of_kind(const void *stub, unsigned kind);

/* Runs body over 0..count on all cores; returns when it is complete. See mo_launch. */
MO_INTERNAL void mo_parallel_for(uint64_t count, mo_range body, void *argument);

/* Returns 1 if libomptarget, or the fallback for it, can run kernels on the CPU, otherwise 0. */
MO_INTERNAL int mo_count_host_devices(void);
MO_INTERNAL void mo_cuda_encode_tensor_map(const mo_tensor_encoding *of);
MO_INTERNAL void mo_host_encode_tensor_map(const mo_tensor_encoding *of);

/* Returns whether code for the CPU was registered. */
MO_INTERNAL bool mo_has_host_images(void);

#endif
