/* Kind cuda: the CUDA runtime API. Kernels are launched by the address of their host stub, which
 * clang-linker-wrapper registers, as in CUDA C++. */
#include <pthread.h>
#include <stdlib.h>

#include "cuda.h"

static int cuda_count_devices(void) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == CUDA_SUCCESS)
    return count;
  cudaGetLastError(); /* asking is not an error of the program's */
  return 0;
}

static void cuda_set_device(int index) {
  CUDA_CHECK(cudaSetDevice(index), "cudaSetDevice", "choosing cuda:%d", index);
}

/* Memory that is not from a pool, for which cudaFreeAsync cannot be used. It is recorded, because querying the API
 * would take longer than the release itself. */
typedef struct unpooled {
  void *pointer;
  struct unpooled *next;
} unpooled;

enum { UNPOOLED_BUCKETS = 256 };
static unpooled *mo_unpooled[UNPOOLED_BUCKETS];
static pthread_mutex_t mo_unpooled_lock = PTHREAD_MUTEX_INITIALIZER;

static unpooled **unpooled_bucket(const void *pointer) {
  return &mo_unpooled[((uintptr_t)pointer >> 8) * 0x9E3779B97F4A7C15u >> 56];
}

static void *note_unpooled(void *pointer) {
  unpooled *added = malloc(sizeof *added), **bucket = unpooled_bucket(pointer);
  if (!added) {
    mo_error("out of host memory while allocating on a device");
    mo_hint("free host memory");
  }
  pthread_mutex_lock(&mo_unpooled_lock);
  *added = (unpooled){pointer, *bucket};
  *bucket = added;
  pthread_mutex_unlock(&mo_unpooled_lock);
  return pointer;
}

/* Removes the pointer from the record. Returns whether it was there. */
static bool take_unpooled(const void *pointer) {
  pthread_mutex_lock(&mo_unpooled_lock);
  unpooled **link = unpooled_bucket(pointer);
  while (*link && (*link)->pointer != pointer)
    link = &(*link)->next;
  unpooled *found = *link;
  if (found)
    *link = found->next;
  pthread_mutex_unlock(&mo_unpooled_lock);
  free(found);
  return found != NULL;
}

static void *cuda_allocate(uint64_t size_bytes, bool is_host_shared, void *stream) {
  void *pointer = NULL;
  unsigned long long size = size_bytes;
  if (is_host_shared) {
    CUDA_CHECK(cudaMallocManaged(&pointer, size_bytes, CUDA_MEM_ATTACH_GLOBAL),
               "cudaMallocManaged", "allocating %llu bytes shared with the host", size);
    return note_unpooled(pointer);
  }
  if (stream) {
    int status = cudaMallocAsync(&pointer, size_bytes, stream);
    if (status == CUDA_SUCCESS)
      return pointer;
    if (status != CUDA_NOT_SUPPORTED)
      mo_cuda_stop(status, "cudaMallocAsync", "allocating %llu bytes", size);
    cudaGetLastError(); /* a device without memory pools */
  }
  CUDA_CHECK(cudaMalloc(&pointer, size_bytes), "cudaMalloc", "allocating %llu bytes", size);
  return note_unpooled(pointer);
}

/* Memory from another copy of the runtime may also not be from a pool: CUDA_INVALID_VALUE. */
static void cuda_release(void *pointer, void *stream) {
  if (!take_unpooled(pointer)) {
    int status = cudaFreeAsync(pointer, stream);
    if (status == CUDA_SUCCESS)
      return;
    if (status != CUDA_NOT_SUPPORTED && status != CUDA_INVALID_VALUE)
      mo_cuda_stop(status, "cudaFreeAsync", "freeing %p", pointer);
    cudaGetLastError();
  }
  if (stream)
    CUDA_CHECK(cudaStreamSynchronize(stream), "cudaStreamSynchronize", "freeing %p", pointer);
  CUDA_CHECK(cudaFree(pointer), "cudaFree", "freeing %p", pointer);
}

static void cuda_copy(void *target, const void *source, size_t size_bytes, void *stream) {
  CUDA_CHECK(cudaMemcpyAsync(target, source, size_bytes, CUDA_MEMCPY_DEFAULT, stream),
             "cudaMemcpyAsync", "copying %zu bytes from %p to %p", size_bytes, source, target);
}

/* Streams of the driver API and the runtime API are the same. The call of cudaFree makes the context current that
 * the driver API requires. */
void *mo_cuda_driver_function(const char *name) {
  void *function = NULL;
  CUDA_CHECK(cudaFree(NULL), "cudaFree", "starting CUDA");
  CUDA_CHECK(cudaGetDriverEntryPoint(name, &function, 0, NULL), "cudaGetDriverEntryPoint",
             "looking for %s in the driver", name);
  if (!function)
    mo_cuda_stop(CUDA_NOT_SUPPORTED, "cudaGetDriverEntryPoint", "looking for %s", name);
  return function;
}

/* The errors that these two functions return have the same numbers in CUresult and cudaError_t. */
static void cuda_fill_words(void *target, uint64_t value, size_t width, size_t count,
                            void *stream) {
  typedef int set16(unsigned long long, unsigned short, size_t, void *);
  typedef int set32(unsigned long long, unsigned, size_t, void *);
  const char *name = width == sizeof(short) ? "cuMemsetD16Async" : "cuMemsetD32Async";
  void *set = mo_cuda_driver_function(name);
  uintptr_t place = (uintptr_t)target;
  int status = width == sizeof(short) ? ((set16 *)set)(place, (unsigned short)value, count, stream)
                                      : ((set32 *)set)(place, (unsigned)value, count, stream);
  CUDA_CHECK(status, name, "setting %zu values at %p", count, target);
}

/* The runtime API only sets bytes. The driver API sets values of 2 and 4 bytes. */
static void cuda_fill(void *target, uint64_t value, size_t width, size_t count, void *stream) {
  uint64_t ones = ~(uint64_t)0 >> (64 - 8 * width), byte = value & 0xFF;
  if ((value & ones) == (byte * 0x0101010101010101u & ones))
    CUDA_CHECK(cudaMemsetAsync(target, (int)byte, count * width, stream), "cudaMemsetAsync",
               "setting %zu bytes at %p", count * width, target);
  else if (width == 8)
    mo_fill_by_copies(&mo_cuda, target, value, count, stream);
  else
    cuda_fill_words(target, value, width, count, stream);
}

static void cuda_register_host(void *pointer, uint64_t size_bytes) {
  CUDA_CHECK(cudaHostRegister(pointer, size_bytes, 0), "cudaHostRegister",
             "registering %llu bytes of host memory at %p", (unsigned long long)size_bytes,
             pointer);
}

static void cuda_unregister_host(void *pointer) {
  CUDA_CHECK(cudaHostUnregister(pointer), "cudaHostUnregister",
             "unregistering the host memory at %p", pointer);
}

static void *cuda_device_pointer(void *registered) {
  void *pointer = NULL;
  CUDA_CHECK(cudaHostGetDevicePointer(&pointer, registered, 0), "cudaHostGetDevicePointer",
             "looking for the device address of registered memory at %p", registered);
  return pointer;
}

/* Returns whether the API allocated or registered the memory, or the GPU can access all host memory. */
static bool cuda_reaches(const void *pointer) {
  int device = 0, is_pageable = 0;
  cuda_pointer found = {0};
  if (cudaGetDevice(&device) == CUDA_SUCCESS &&
      cudaDeviceGetAttribute(&is_pageable, CUDA_ATTRIBUTE_PAGEABLE_MEMORY, device) ==
          CUDA_SUCCESS &&
      is_pageable)
    return true;
  if (cudaPointerGetAttributes(&found, pointer) == CUDA_SUCCESS)
    return found.on_device == pointer;
  cudaGetLastError(); /* asking is not an error of the program's */
  return false;
}

static dim3 to_dim3(const uint32_t *sizes) { return (dim3){sizes[0], sizes[1], sizes[2]}; }

static int cuda_launch_plain(const void *stub, const mo_shape *shape, void *stream, void **params) {
  return cudaLaunchKernel(stub, to_dim3(shape->grid), to_dim3(shape->block), params,
                          shape->dynamic_shared, stream);
}

static int cuda_launch_extended(const void *stub, const mo_shape *shape, void *stream,
                                void **params) {
  cuda_attribute attributes[2];
  cuda_config config = {.grid = to_dim3(shape->grid),
                        .block = to_dim3(shape->block),
                        .dynamic_shared = shape->dynamic_shared,
                        .stream = stream,
                        .attributes = attributes};
  if (shape->cluster[0]) {
    cuda_attribute *cluster = &attributes[config.attribute_count++];
    *cluster = (cuda_attribute){.id = CUDA_LAUNCH_CLUSTER};
    cluster->value.cluster.x = shape->cluster[0];
    cluster->value.cluster.y = shape->cluster[1];
    cluster->value.cluster.z = shape->cluster[2];
  }
  if (shape->is_cooperative)
    attributes[config.attribute_count++] =
        (cuda_attribute){.id = CUDA_LAUNCH_COOPERATIVE, .value.cooperative = 1};
  return cudaLaunchKernelExC(&config, stub, params);
}

static void cuda_launch(const void *stub, const mo_shape *shape, void *stream, void **params) {
  bool is_extended = shape->cluster[0] || shape->is_cooperative;
  int (*start)(const void *, const mo_shape *, void *, void **) =
      is_extended ? cuda_launch_extended : cuda_launch_plain;
  const char *call = is_extended ? "cudaLaunchKernelExC" : "cudaLaunchKernel";
  int status = start(stub, shape, stream, params);
  if (status == CUDA_INVALID_VALUE && shape->dynamic_shared) {
    /* More than 48 KiB of workgroup memory, static and dynamic together, must be requested once per
     * kernel. Only the API knows the static part, so the failure of the launch is the test. */
    cudaGetLastError();
    status = cudaFuncSetAttribute(stub, CUDA_FUNCTION_MAX_DYNAMIC_SHARED,
                                  (int)shape->dynamic_shared);
    if (status == CUDA_SUCCESS)
      status = start(stub, shape, stream, params);
    else
      call = "cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize)";
  }
  if (status != CUDA_SUCCESS)
    mo_cuda_stop_launch(status, call, stub, shape);
}

static bool cuda_launch_configured(const void *stub, void **params) {
  dim3 grid, block;
  size_t dynamic_shared;
  void *stream;
  int status = __cudaPopCallConfiguration(&grid, &block, &dynamic_shared, &stream);
#ifdef MLIR_OFFLOAD_HAVE_HIP
  if (status == CUDA_MISSING_CONFIGURATION)
    return false; /* HIP C++ calls the same stub */
#endif
  CUDA_CHECK(status, "__cudaPopCallConfiguration", "launching %s from host code",
             mo_kernel_name(stub) ? mo_kernel_name(stub) : "a kernel of unknown name");
  mo_shape shape = {.grid = {grid.x, grid.y, grid.z},
                    .block = {block.x, block.y, block.z},
                    .dynamic_shared = (uint32_t)dynamic_shared};
  cuda_launch(stub, &shape, stream, params);
  return true;
}

const mo_backend mo_cuda = {
    .name = "cuda",
    .count_devices = cuda_count_devices,
    .count_gpus = cuda_count_devices,
    .explain_no_device = mo_cuda_explain_no_device,
    .set_device = cuda_set_device,
    .create_stream = mo_cuda_create_stream,
    .destroy_stream = mo_cuda_destroy_stream,
    .synchronize_stream = mo_cuda_synchronize,
    .wait_event = mo_cuda_wait_event,
    .create_event = mo_cuda_create_event,
    .destroy_event = mo_cuda_destroy_event,
    .synchronize_event = mo_cuda_synchronize,
    .record_event = mo_cuda_record_event,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .register_host = cuda_register_host,
    .unregister_host = cuda_unregister_host,
    .device_pointer = cuda_device_pointer,
    .reaches = cuda_reaches,
    .launch = cuda_launch,
    .launch_configured = cuda_launch_configured,
    .encode_tensor_map = mo_cuda_encode_tensor_map,
};
