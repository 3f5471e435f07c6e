/* Kind hip: the HIP runtime API. Kernels are launched by the address of their handle, which
 * clang-linker-wrapper registers, as in HIP C++. */
#include "hip.h"

static int hip_count_devices(void) {
  int count = 0;
  if (hipGetDeviceCount(&count) == HIP_SUCCESS)
    return count;
  hipGetLastError(); /* asking is not an error of the program's */
  return 0;
}

static void hip_set_device(int index) {
  HIP_CHECK(hipSetDevice(index), "hipSetDevice", "choosing hip:%d", index);
}

static void *hip_allocate(uint64_t size_bytes, bool is_host_shared, void *stream) {
  void *pointer = NULL;
  unsigned long long size = size_bytes;
  if (is_host_shared) {
    HIP_CHECK(hipMallocManaged(&pointer, size_bytes, HIP_MEM_ATTACH_GLOBAL), "hipMallocManaged",
              "allocating %llu bytes shared with the host", size);
    return pointer;
  }
  if (stream && hipMallocAsync) {
    int status = hipMallocAsync(&pointer, size_bytes, stream);
    if (status == HIP_SUCCESS)
      return pointer;
    if (status != HIP_NOT_SUPPORTED)
      mo_hip_stop(status, "hipMallocAsync", "allocating %llu bytes", size);
    hipGetLastError(); /* a device without memory pools */
  }
  HIP_CHECK(hipMalloc(&pointer, size_bytes), "hipMalloc", "allocating %llu bytes", size);
  return pointer;
}

/* Unlike cudaFreeAsync, hipFreeAsync accepts any memory. Memory that is not from a pool is freed when all
 * work is complete. hipFree does not wait for work on memory from a pool. */
static void hip_release(void *pointer, void *stream) {
  if (hipFreeAsync) {
    int status = hipFreeAsync(pointer, stream);
    if (status == HIP_SUCCESS)
      return;
    if (status != HIP_NOT_SUPPORTED)
      mo_hip_stop(status, "hipFreeAsync", "freeing %p", pointer);
    hipGetLastError();
  }
  if (stream)
    HIP_CHECK(hipStreamSynchronize(stream), "hipStreamSynchronize", "freeing %p", pointer);
  HIP_CHECK(hipFree(pointer), "hipFree", "freeing %p", pointer);
}

static void hip_copy(void *target, const void *source, size_t size_bytes, void *stream) {
  HIP_CHECK(hipMemcpyAsync(target, source, size_bytes, HIP_MEMCPY_DEFAULT, stream),
            "hipMemcpyAsync", "copying %zu bytes from %p to %p", size_bytes, source, target);
}

static void hip_fill(void *target, uint64_t value, size_t width, size_t count, void *stream) {
  switch (width) {
  case 1:
    HIP_CHECK(hipMemsetD8Async(target, (unsigned char)value, count, stream), "hipMemsetD8Async",
              "setting %zu values at %p", count, target);
    return;
  case 2:
    HIP_CHECK(hipMemsetD16Async(target, (unsigned short)value, count, stream), "hipMemsetD16Async",
              "setting %zu values at %p", count, target);
    return;
  case 4:
    HIP_CHECK(hipMemsetD32Async(target, (int)value, count, stream), "hipMemsetD32Async",
              "setting %zu values at %p", count, target);
    return;
  default:
    mo_fill_by_copies(&mo_hip, target, value, count, stream);
  }
}

static void hip_register_host(void *pointer, uint64_t size_bytes) {
  HIP_CHECK(hipHostRegister(pointer, size_bytes, 0), "hipHostRegister",
            "registering %llu bytes of host memory at %p", (unsigned long long)size_bytes, pointer);
}

static void hip_unregister_host(void *pointer) {
  HIP_CHECK(hipHostUnregister(pointer), "hipHostUnregister",
            "unregistering the host memory at %p", pointer);
}

static void *hip_device_pointer(void *registered) {
  void *pointer = NULL;
  HIP_CHECK(hipHostGetDevicePointer(&pointer, registered, 0), "hipHostGetDevicePointer",
            "looking for the device address of registered memory at %p", registered);
  return pointer;
}

/* Returns whether the API allocated or registered the memory. */
static bool hip_reaches(const void *pointer) {
  hip_pointer found = {0};
  if (hipPointerGetAttributes(&found, pointer) == HIP_SUCCESS)
    return found.on_device == pointer;
  hipGetLastError(); /* asking is not an error of the program's */
  return false;
}

static dim3 hip_dim3(const uint32_t *sizes) { return (dim3){sizes[0], sizes[1], sizes[2]}; }

static int hip_start(const void *address, const mo_shape *shape, void *stream, void **params) {
  dim3 grid = hip_dim3(shape->grid), block = hip_dim3(shape->block);
  if (shape->is_cooperative)
    return hipLaunchCooperativeKernel(address, grid, block, params, shape->dynamic_shared, stream);
  return hipLaunchKernel(address, grid, block, params, shape->dynamic_shared, stream);
}

static void hip_launch(const void *address, const mo_shape *shape, void *stream, void **params) {
  const char *call = shape->is_cooperative ? "hipLaunchCooperativeKernel" : "hipLaunchKernel";
  if (shape->cluster[0]) {
    mo_error("cluster launches are not supported on AMD GPUs");
    mo_context_of_launch(address, shape);
    mo_hint("launch the kernel without clusters, or run it on an NVIDIA GPU");
  }
  int status = hip_start(address, shape, stream, params);
  if (status != HIP_SUCCESS)
    mo_hip_stop_launch(status, call, address, shape);
}

static bool hip_launch_configured(const void *address, void **params) {
  dim3 grid, block;
  size_t dynamic_shared;
  void *stream;
  const char *name = mo_kernel_name(address);
  HIP_CHECK(__hipPopCallConfiguration(&grid, &block, &dynamic_shared, &stream),
            "__hipPopCallConfiguration", "launching %s from host code",
            name ? name : "a kernel of unknown name");
  mo_shape shape = {.grid = {grid.x, grid.y, grid.z},
                    .block = {block.x, block.y, block.z},
                    .dynamic_shared = (uint32_t)dynamic_shared};
  hip_launch(address, &shape, stream, params);
  return true;
}

const mo_backend mo_hip = {
    .name = "hip",
    .count_devices = hip_count_devices,
    .count_gpus = hip_count_devices,
    .explain_no_device = mo_hip_explain_no_device,
    .set_device = hip_set_device,
    .create_stream = mo_hip_create_stream,
    .destroy_stream = mo_hip_destroy_stream,
    .synchronize_stream = mo_hip_synchronize,
    .wait_event = mo_hip_wait_event,
    .create_event = mo_hip_create_event,
    .destroy_event = mo_hip_destroy_event,
    .synchronize_event = mo_hip_synchronize,
    .record_event = mo_hip_record_event,
    .allocate = hip_allocate,
    .release = hip_release,
    .copy = hip_copy,
    .fill = hip_fill,
    .register_host = hip_register_host,
    .unregister_host = hip_unregister_host,
    .device_pointer = hip_device_pointer,
    .reaches = hip_reaches,
    .launch = hip_launch,
    .launch_configured = hip_launch_configured,
};
