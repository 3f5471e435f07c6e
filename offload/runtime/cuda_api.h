/* The part of the CUDA runtime API (11.8 to 13.0) that the runtime uses, declared here so that no CUDA
 * headers are required. Its ABI is plain C. */
#ifndef CUDA_API_H
#define CUDA_API_H

#include <stddef.h>

typedef struct dim3 {
  unsigned x, y, z;
} dim3;

/* cudaLaunchAttribute: the value is a union of 64 bytes. */
typedef struct cuda_attribute {
  int id;
  char padding[4];
  union {
    char size[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int cooperative;
  } value;
} cuda_attribute;

typedef struct cuda_config {
  dim3 grid, block;
  size_t dynamic_shared;
  void *stream;
  cuda_attribute *attributes;
  unsigned attribute_count;
} cuda_config;

/* cudaPointerAttributes. CUDA 13 added reserved bytes at the end. */
typedef struct cuda_pointer {
  int type, device;
  void *on_device, *on_host;
  char reserved[104];
} cuda_pointer;

enum {
  CUDA_SUCCESS = 0,
  CUDA_INVALID_VALUE = 1,
  CUDA_MEMORY_ALLOCATION = 2,
  CUDA_RUNTIME_UNLOADING = 4,
  CUDA_INVALID_CONFIGURATION = 9,
  CUDA_INSUFFICIENT_DRIVER = 35,
  CUDA_DEVICES_UNAVAILABLE = 46,
  CUDA_MISSING_CONFIGURATION = 52,
  CUDA_INVALID_DEVICE_FUNCTION = 98,
  CUDA_NO_DEVICE = 100,
  CUDA_DEVICE_UNINITIALIZED = 201,
  CUDA_NO_KERNEL_IMAGE = 209,
  CUDA_UNSUPPORTED_PTX = 222,
  CUDA_INVALID_HANDLE = 400,
  CUDA_NOT_READY = 600,
  CUDA_ILLEGAL_ADDRESS = 700,
  CUDA_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_CONTEXT_IS_DESTROYED = 709,
  CUDA_ASSERT = 710,
  CUDA_HOST_MEMORY_REGISTERED = 712,
  CUDA_MISALIGNED_ADDRESS = 716,
  CUDA_LAUNCH_FAILURE = 719,
  CUDA_COOPERATIVE_TOO_LARGE = 720,
  CUDA_NOT_SUPPORTED = 801,
  CUDA_DRIVER_MISMATCH = 803,
};

enum {
  CUDA_ATTRIBUTE_COMPUTE_MAJOR = 75,
  CUDA_ATTRIBUTE_COMPUTE_MINOR = 76,
  CUDA_ATTRIBUTE_PAGEABLE_MEMORY = 88,
  CUDA_ATTRIBUTE_MAX_SHARED_OPTIN = 97,
  CUDA_FUNCTION_MAX_DYNAMIC_SHARED = 8,
  CUDA_LAUNCH_COOPERATIVE = 2,
  CUDA_LAUNCH_CLUSTER = 4,
  CUDA_STREAM_NON_BLOCKING = 1,
  CUDA_EVENT_DISABLE_TIMING = 2,
  CUDA_MEMCPY_DEFAULT = 4,
  CUDA_MEM_ATTACH_GLOBAL = 1,
  CUDA_MEMORY_TYPE_DEVICE = 2,
};

const char *cudaGetErrorName(int);
const char *cudaGetErrorString(int);
int cudaGetLastError(void);
int cudaRuntimeGetVersion(int *);
int cudaDriverGetVersion(int *);
int cudaGetDeviceCount(int *);
int cudaGetDevice(int *);
int cudaSetDevice(int);
int cudaDeviceGetAttribute(int *, int attribute, int device);
int cudaStreamCreateWithFlags(void **, unsigned);
int cudaStreamSynchronize(void *);
int cudaStreamQuery(void *);
int cudaStreamWaitEvent(void *stream, void *event, unsigned);
int cudaEventCreateWithFlags(void **, unsigned);
int cudaEventRecord(void *event, void *stream);
int cudaEventSynchronize(void *);
int cudaEventQuery(void *);
int cudaDeviceSynchronize(void);
int cudaMalloc(void **, size_t);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaFree(void *);
int cudaMallocAsync(void **, size_t, void *stream);
int cudaFreeAsync(void *, void *stream);
int cudaMemGetInfo(size_t *free, size_t *total);
int cudaMemcpyAsync(void *, const void *, size_t, int kind, void *stream);
int cudaMemsetAsync(void *, int byte, size_t, void *stream);
int cudaHostRegister(void *, size_t, unsigned);
int cudaHostUnregister(void *);
int cudaHostGetDevicePointer(void **, void *, unsigned);
int cudaPointerGetAttributes(cuda_pointer *, const void *);
int cudaFuncSetAttribute(const void *, int attribute, int value);
int cudaLaunchKernel(const void *, dim3 grid, dim3 block, void **params, size_t, void *stream);
int cudaLaunchKernelExC(const cuda_config *, const void *, void **params);
int cudaGetDriverEntryPoint(const char *, void **, unsigned long long, void *status);
int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *, void *stream);

#endif
