/* The functions that code from gpu-to-llvm and mlir-translate calls, with the declarations of upstream's CUDA runtime
 * wrappers (mlir/lib/ExecutionEngine/CudaRuntimeWrappers.cpp), implemented with the linked backends.
 *
 * mgpuModuleLoad, mgpuModuleUnload and mgpuModuleGetFunction do not exist, because the compiler binds launches to
 * host stubs: the function of a launch is the address of the kernel's host stub, under which clang-linker-wrapper
 * registers the kernel for every kind.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "device_name.h"
#include "mgpu.h"
#include "mlir_offload.h"

/* The files of a kind outside of this directory are on the command line (-include) and define its backend. */
#if !defined MLIR_OFFLOAD_OTHER_BACKEND && !defined MLIR_OFFLOAD_HAVE_CUDA && !defined MLIR_OFFLOAD_HAVE_HIP && \
    !defined MLIR_OFFLOAD_HAVE_SYCL && !defined MLIR_OFFLOAD_HAVE_OPENMP
#error "define MLIR_OFFLOAD_HAVE_CUDA, ..._HIP, ..._SYCL, ..._OPENMP or several"
#endif

/* The default is the first backend with a GPU, otherwise the last one with a device: the CPU itself before
 * OpenCL on the CPU. The objects of a program may embed runtimes of different kinds; the address of an absent
 * backend is NULL. */
static const mo_backend *const mo_backends[] = {
#ifdef MLIR_OFFLOAD_EMBEDDED
    &mo_cuda,
    &mo_hip,
    &mo_sycl,
    &mo_host,
#else
#ifdef MLIR_OFFLOAD_HAVE_CUDA
    &mo_cuda,
#endif
#ifdef MLIR_OFFLOAD_HAVE_HIP
    &mo_hip,
#endif
#ifdef MLIR_OFFLOAD_HAVE_SYCL
    &mo_sycl,
#endif
#ifdef MLIR_OFFLOAD_HAVE_OPENMP
    &mo_host,
#endif
#endif
#ifdef MLIR_OFFLOAD_OTHER_BACKEND
    &MLIR_OFFLOAD_OTHER_BACKEND,
#endif
};
enum { BACKEND_COUNT = sizeof mo_backends / sizeof *mo_backends };

/* The settings of a thread. The accessor is public, so that the dynamic linker binds all copies of the runtime
 * in a process to one of them. Its name changes with the layout. The structure has no pointers into a library,
 * which may be unloaded before the thread ends. */
typedef struct mo_thread_2 {
  void *stream;
  mo_device device;
  unsigned change; /* counts the changes of device */
} mo_thread_2;

mo_thread_2 *mlir_offload_thread_2(void);
MO_PUBLIC mo_thread_2 *mlir_offload_thread_2(void) {
  static _Thread_local mo_thread_2 thread;
  return &thread;
}

static mo_device mo_initial; /* the choice of MLIR_OFFLOAD_DEVICE, or none */
static bool mo_initial_is_wrong;

static void read_initial_device(void) {
  const char *text = getenv("MLIR_OFFLOAD_DEVICE");
  mo_initial_is_wrong = text && *text && !mo_parse_device(text, &mo_initial);
}

/* Returns the value of --offload-arch= for the backend with that name. */
static const char *arch_of_backend(const char *name) {
  return !strcmp(name, "cuda")   ? "sm_NN"
         : !strcmp(name, "hip")  ? "gfxNNN"
         : !strcmp(name, "sycl") ? "spirv64"
                                 : "host";
}

MO_NORETURN static void refuse_absent_backend(const char *name) {
  mo_error("device '%s' was chosen, but this program contains no device code for it", name);
  for (int i = 0; i < BACKEND_COUNT; ++i)
    if (mo_backends[i])
      mo_context("device code is there for: %s", mo_backends[i]->name);
  mo_hint("link again with --offload-arch=%s, or choose another device by MLIR_OFFLOAD_DEVICE",
          arch_of_backend(name));
}

static const mo_backend *find_backend(const char *name) {
  for (int i = 0; i < BACKEND_COUNT; ++i)
    if (mo_backends[i] && !strcmp(mo_backends[i]->name, name))
      return mo_backends[i];
  refuse_absent_backend(name);
}

static const mo_backend *find_default(void) {
  const mo_backend *first = NULL;
  for (int i = 0; i < BACKEND_COUNT; ++i) {
    const mo_backend *backend = mo_backends[i];
    first = first ? first : backend;
    if (backend && backend->count_gpus && backend->count_gpus() > 0)
      return backend;
  }
  for (int i = BACKEND_COUNT - 1; i >= 0; --i)
    if (mo_backends[i] && mo_backends[i]->count_devices() > 0)
      return mo_backends[i];
  first->explain_no_device();
}

/* A child process uses the choice of its parent, because it cannot query the API of a GPU. */
static _Atomic(const mo_backend *) mo_default;
static bool mo_is_child;

static const mo_backend *default_backend(void) {
  const mo_backend *found = mo_is_child ? mo_default : NULL;
  if (!found)
    mo_default = found = find_default();
  return found;
}

/* The backends that this process has used, and those that its parent had used when it forked, as a bit mask.
 * Their locks, and those of the API, may be held by threads that do not exist in the child. */
static atomic_uint mo_used;
static unsigned mo_lost;

static void use_backend(const mo_backend *backend) {
  unsigned bit = 0;
  for (int i = 0; i < BACKEND_COUNT; ++i)
    bit |= (unsigned)(mo_backends[i] == backend) << i;
  if (bit & mo_lost) {
    mo_error("device '%s' was in use when this process was forked", backend->name);
    mo_hint("fork before the first use, or start programs by exec instead; the child may use the CPU if "
            "the program was linked with --offload-arch=host");
  }
  if (!backend->survives_fork)
    mo_used |= bit;
}

static void check_device(const mo_backend *backend, int index) {
  int count = backend->count_devices();
  if (count <= 0)
    backend->explain_no_device();
  if (index < 0 || index >= count) {
    mo_error("there is no device %d: '%s' has %d", index, backend->name, count);
    mo_hint("choose a device from 0 to %d", count - 1);
  }
}

typedef struct mo_binding {
  const mo_backend *backend;
  int index;
  unsigned change;
} mo_binding;
static _Thread_local mo_binding mo_bound;

static void lose_backends(void) {
  mo_is_child = true;
  mo_lost |= mo_used;
  mo_bound.backend = NULL;
}

__attribute__((constructor)) static void watch_backends(void) {
  pthread_atfork(NULL, NULL, lose_backends);
}

static void bind_thread(const mo_thread_2 *thread) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_initial_device);
  if (mo_initial_is_wrong)
    mo_refuse_device("MLIR_OFFLOAD_DEVICE", getenv("MLIR_OFFLOAD_DEVICE"));
  mo_device wanted = *thread->device.name ? thread->device : mo_initial;
  const mo_backend *backend = *wanted.name ? find_backend(wanted.name) : default_backend();
  int index = *wanted.name ? wanted.index : CURRENT_INDEX;
  use_backend(backend);
  if (index >= OF_CLASS)
    index = backend->find_device((mo_device_class)(index / OF_CLASS - 1), index % OF_CLASS);
  check_device(backend, index == CURRENT_INDEX ? 0 : index);
  mo_bound = (mo_binding){backend, index, thread->change};
}

/* Returns the backend of the calling thread, after making its device current. */
static const mo_backend *active(void) {
  const mo_thread_2 *thread = mlir_offload_thread_2();
  if (!mo_bound.backend || mo_bound.change != thread->change)
    bind_thread(thread);
  if (mo_bound.index != CURRENT_INDEX)
    mo_bound.backend->set_device(mo_bound.index);
  return mo_bound.backend;
}

const mo_backend *mo_active_backend(void) { return active(); }

void mo_require_kind(const char *name, const char *call) {
  const mo_backend *backend = active();
  if (!strcmp(backend->name, name))
    return;
  mo_error("%s is for devices of kind '%s', and the device is of kind '%s'", call, name,
           backend->name);
  mo_hint("choose another device, by MLIR_OFFLOAD_DEVICE=%s or mlir_offload_set_device", name);
}

MO_PUBLIC void mlir_offload_set_stream(void *stream) { mlir_offload_thread_2()->stream = stream; }

MO_PUBLIC void *mlir_offload_get_stream(void) { return mlir_offload_thread_2()->stream; }

/* The next use checks whether the backend exists, because another copy of the runtime may have it. */
MO_PUBLIC void mlir_offload_set_device(const char *text) {
  mo_thread_2 *thread = mlir_offload_thread_2();
  mo_device device;
  if (!text || !mo_parse_device(text, &device))
    mo_refuse_device("mlir_offload_set_device", text ? text : "(null)");
  thread->device = device;
  ++thread->change;
}

MO_CONTRACT void mgpuSetDefaultDevice(int32_t index) {
  mo_thread_2 *thread = mlir_offload_thread_2();
  const mo_backend *backend = active();
  check_device(backend, index);
  thread->device = mo_named_device(backend->name, index);
  ++thread->change;
}

MO_CONTRACT void *mgpuStreamCreate(void) {
  void *stream = mlir_offload_get_stream();
  return stream ? stream : active()->create_stream();
}

MO_CONTRACT void mgpuStreamDestroy(void *stream) { active()->destroy_stream(stream); }
MO_CONTRACT void mgpuStreamSynchronize(void *stream) { active()->synchronize_stream(stream); }
MO_CONTRACT void mgpuStreamWaitEvent(void *stream, void *event) {
  active()->wait_event(stream, event);
}

MO_CONTRACT void *mgpuEventCreate(void) { return active()->create_event(); }
MO_CONTRACT void mgpuEventDestroy(void *event) { active()->destroy_event(event); }
MO_CONTRACT void mgpuEventSynchronize(void *event) { active()->synchronize_event(event); }
MO_CONTRACT void mgpuEventRecord(void *event, void *stream) {
  active()->record_event(event, stream);
}

MO_CONTRACT void *mgpuMemAlloc(uint64_t size_bytes, void *stream, bool is_host_shared) {
  return active()->allocate(size_bytes, is_host_shared, stream);
}

MO_CONTRACT void mgpuMemFree(void *pointer, void *stream) {
  if (pointer)
    active()->release(pointer, stream);
}

MO_CONTRACT void mgpuMemcpy(void *target, void *source, size_t size_bytes, void *stream) {
  if (size_bytes)
    active()->copy(target, source, size_bytes, stream);
}

MO_CONTRACT void mgpuMemset16(void *target, uint16_t value, size_t count, void *stream) {
  if (count)
    active()->fill(target, value, sizeof value, count, stream);
}

MO_CONTRACT void mgpuMemset32(void *target, uint32_t value, size_t count, void *stream) {
  if (count)
    active()->fill(target, value, sizeof value, count, stream);
}

void mo_fill_by_copies(const mo_backend *backend, void *target, uint64_t value, size_t count,
                       void *stream) {
  size_t size = count * sizeof value;
  char *bytes = target;
  backend->fill(bytes, (uint32_t)value, 4, 1, stream);
  backend->fill(bytes + 4, (uint32_t)(value >> 32), 4, 1, stream);
  for (size_t done = sizeof value, piece; done < size; done += piece) {
    piece = done < size - done ? done : size - done;
    backend->copy(bytes + done, bytes, piece, stream);
  }
}

/* A dimension of one memref, or of both memrefs of a copy; strides in elements. */
typedef struct mo_dimension {
  int64_t size, target_stride, source_stride;
} mo_dimension;

typedef struct mo_transfer {
  int64_t element_bytes;
  uint64_t value; /* of a fill */
  void *stream;
} mo_transfer;

/* Merges dimensions that are contiguous in memory, and returns their number. */
static int64_t join_dimensions(mo_dimension *dimensions, int64_t rank) {
  int64_t used = 0;
  for (int64_t i = 0; i < rank; ++i) {
    mo_dimension inner = dimensions[i], *outer = &dimensions[used - 1];
    if (inner.size == 1)
      continue;
    if (used && outer->target_stride == inner.size * inner.target_stride &&
        outer->source_stride == inner.size * inner.source_stride) {
      inner.size *= outer->size;
      --used;
    }
    dimensions[used++] = inner;
  }
  return used;
}

/* Copies, or fills if there is no source, in contiguous pieces. */
static void transfer(const mo_transfer *how, const mo_dimension *dimension, int64_t rank,
                     char *target, char *source) {
  if (rank == 0 ||
      (rank == 1 && dimension->target_stride == 1 && dimension->source_stride == 1)) {
    int64_t count = rank ? dimension->size : 1;
    if (count > 0 && source)
      active()->copy(target, source, (size_t)(count * how->element_bytes), how->stream);
    else if (count > 0)
      active()->fill(target, how->value, (size_t)how->element_bytes, (size_t)count, how->stream);
    return;
  }
  for (int64_t i = 0; i < dimension->size; ++i) {
    transfer(how, dimension + 1, rank - 1, target, source);
    target += dimension->target_stride * how->element_bytes;
    source = source ? source + dimension->source_stride * how->element_bytes : NULL;
  }
}

/* gpu.memcpy of memrefs with any layout. Offsets and strides are in elements. The variadic arguments are
 * int64_t, for each dimension: its size, the stride in the target, and the stride in the source. */
MO_CONTRACT void mgpuMemcpyMemRef(char *target, int64_t target_offset, char *source,
                                  int64_t source_offset, int64_t element_bytes, void *stream,
                                  int64_t rank, ...) {
  mo_dimension dimensions[rank + 1];
  va_list list;
  va_start(list, rank);
  for (int64_t i = 0; i < rank; ++i) {
    dimensions[i].size = va_arg(list, int64_t);
    dimensions[i].target_stride = va_arg(list, int64_t);
    dimensions[i].source_stride = va_arg(list, int64_t);
  }
  va_end(list);
  mo_transfer how = {.element_bytes = element_bytes, .stream = stream};
  transfer(&how, dimensions, join_dimensions(dimensions, rank),
           target + target_offset * element_bytes, source + source_offset * element_bytes);
}

/* gpu.memset of memrefs with any layout and element size. The variadic arguments are a size and a stride for each
 * dimension. */
MO_CONTRACT void mgpuMemsetMemRef(char *target, int64_t offset, uint64_t value,
                                  int64_t element_bytes, void *stream, int64_t rank, ...) {
  mo_dimension dimensions[rank + 1];
  va_list list;
  va_start(list, rank);
  for (int64_t i = 0; i < rank; ++i) {
    dimensions[i].size = va_arg(list, int64_t);
    dimensions[i].target_stride = dimensions[i].source_stride = va_arg(list, int64_t);
  }
  va_end(list);
  mo_transfer how = {.element_bytes = element_bytes, .value = value, .stream = stream};
  transfer(&how, dimensions, join_dimensions(dimensions, rank), target + offset * element_bytes,
           NULL);
}

MO_CONTRACT void mgpuMemHostRegister(void *pointer, uint64_t size_bytes) {
  if (size_bytes)
    active()->register_host(pointer, size_bytes);
}

MO_CONTRACT void mgpuMemHostUnregister(void *pointer) { active()->unregister_host(pointer); }

/* A ranked memref: two pointers, the offset in elements, then all sizes, then all strides. */
typedef struct mo_memref {
  char *allocated, *aligned;
  int64_t offset;
  int64_t sizes_and_strides[];
} mo_memref;

/* Returns the first byte that the memref covers, and the number of bytes up to the last one, 0 for an empty
 * memref. Strides may be negative. */
static char *memref_extent(int64_t rank, const mo_memref *memref, int64_t element_bytes,
                           uint64_t *size_bytes) {
  const int64_t *sizes = memref->sizes_and_strides, *strides = sizes + rank;
  int64_t first = memref->offset, last = memref->offset;
  *size_bytes = 0;
  for (int64_t i = 0; i < rank; ++i) {
    if (sizes[i] <= 0)
      return memref->aligned;
    int64_t span = (sizes[i] - 1) * strides[i];
    *(span < 0 ? &first : &last) += span;
  }
  *size_bytes = (uint64_t)((last - first + 1) * element_bytes);
  return memref->aligned + first * element_bytes;
}

MO_CONTRACT void mgpuMemHostRegisterMemRef(int64_t rank, mo_memref *memref, int64_t element_bytes) {
  uint64_t size_bytes;
  char *first = memref_extent(rank, memref, element_bytes, &size_bytes);
  mgpuMemHostRegister(first, size_bytes);
}

MO_CONTRACT void mgpuMemHostUnregisterMemRef(int64_t rank, mo_memref *memref,
                                             int64_t element_bytes) {
  uint64_t size_bytes;
  char *first = memref_extent(rank, memref, element_bytes, &size_bytes);
  if (size_bytes)
    mgpuMemHostUnregister(first);
}

typedef struct mo_memref_1d {
  char *allocated, *aligned;
  int64_t offset, size, stride;
} mo_memref_1d;

/* Programs call these two functions by name to access registered host memory in kernels. */
MO_CONTRACT mo_memref_1d mgpuMemGetDeviceMemRef1dFloat(char *allocated, char *aligned,
                                                       int64_t offset, int64_t size,
                                                       int64_t stride) {
  char *device = active()->device_pointer(aligned);
  (void)allocated;
  return (mo_memref_1d){device, device, offset, size, stride};
}

MO_CONTRACT mo_memref_1d mgpuMemGetDeviceMemRef1dInt32(char *allocated, char *aligned,
                                                       int64_t offset, int64_t size,
                                                       int64_t stride) {
  return mgpuMemGetDeviceMemRef1dFloat(allocated, aligned, offset, size, stride);
}

/* Sizes are passed as 64-bit integers. No device supports more than 32 bits, or blocks of 0 threads. */
static void set_dimensions(uint32_t *result, const int64_t *sizes, const char *what) {
  for (int i = 0; i < 3; ++i) {
    if (sizes[i] < 1 || sizes[i] > UINT32_MAX) {
      mo_error("a kernel was launched with %s %lld x %lld x %lld", what, (long long)sizes[0],
               (long long)sizes[1], (long long)sizes[2]);
      mo_hint("every size must be 1 to %u: do not launch where there is nothing to do", UINT32_MAX);
    }
    result[i] = (uint32_t)sizes[i];
  }
}

static void launch(const void *stub, mo_shape *shape, const int64_t *grid, const int64_t *block,
                   void *stream, void **params) {
  if (mo_is_empty_launch(grid, block))
    return;
  if (shape->dynamic_shared > INT32_MAX) {
    mo_error("a kernel was launched with %d bytes of dynamic workgroup memory",
             (int)shape->dynamic_shared);
    mo_hint("the size is a positive i32: check how dynamic_shared_memory_size is computed");
  }
  set_dimensions(shape->grid, grid, "a grid of");
  set_dimensions(shape->block, block, "blocks of");
  mo_launch_kernel(active(), stub, shape, stream, params);
}

MO_CONTRACT void mgpuLaunchKernel(void *stub, int64_t grid_x, int64_t grid_y, int64_t grid_z,
                                  int64_t block_x, int64_t block_y, int64_t block_z,
                                  int32_t dynamic_shared, void *stream, void **params,
                                  void **extra, int64_t param_count) {
  (void)extra, (void)param_count;
  mo_shape shape = {.dynamic_shared = (uint32_t)dynamic_shared};
  int64_t grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  launch(stub, &shape, grid, block, stream, params);
}

MO_CONTRACT void mgpuLaunchClusterKernel(void *stub, int64_t cluster_x, int64_t cluster_y,
                                         int64_t cluster_z, int64_t grid_x, int64_t grid_y,
                                         int64_t grid_z, int64_t block_x, int64_t block_y,
                                         int64_t block_z, int32_t dynamic_shared, void *stream,
                                         void **params, void **extra) {
  (void)extra;
  mo_shape shape = {.dynamic_shared = (uint32_t)dynamic_shared};
  int64_t grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  int64_t cluster[] = {cluster_x, cluster_y, cluster_z};
  set_dimensions(shape.cluster, cluster, "clusters of");
  launch(stub, &shape, grid, block, stream, params);
}

/* LLVM 23. The order of the parameters differs from mgpuLaunchClusterKernel. */
MO_CONTRACT void mgpuLaunchKernelCooperative(void *stub, int64_t grid_x, int64_t grid_y,
                                             int64_t grid_z, int64_t cluster_x, int64_t cluster_y,
                                             int64_t cluster_z, int64_t block_x, int64_t block_y,
                                             int64_t block_z, int32_t dynamic_shared, void *stream,
                                             void **params, void **extra) {
  (void)extra;
  mo_shape shape = {.dynamic_shared = (uint32_t)dynamic_shared, .is_cooperative = true};
  int64_t grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  int64_t cluster[] = {cluster_x, cluster_y, cluster_z};
  if (cluster_x || cluster_y || cluster_z)
    set_dimensions(shape.cluster, cluster, "clusters of");
  launch(stub, &shape, grid, block, stream, params);
}

MO_NORETURN static void refuse_configured_launch(const void *stub) {
  const char *name = mo_kernel_name(stub);
  mo_error("%s was called from host code, but this program contains no device code for a GPU of NVIDIA "
           "or AMD",
           name ? name : "a kernel");
  mo_hint("<<<>>> and calls of a kernel's stub need such a GPU: link with --offload-arch=sm_NN (or "
          "gfxNNN), or launch the kernel from MLIR (gpu.launch_func)");
}

/* The body of every host stub. CUDA or HIP C++ calls the stub after pushing the configuration of `<<<>>>` to its
 * own runtime, so that runtime launches the kernel, whatever device the thread has selected. */
MO_CONTRACT void mlir_offload_launch_stub(const void *stub, void **params) {
  for (int i = 0; i < BACKEND_COUNT; ++i) {
    const mo_backend *backend = mo_backends[i];
    if (backend && backend->launch_configured && backend->launch_configured(stub, params))
      return;
  }
  refuse_configured_launch(stub);
}
