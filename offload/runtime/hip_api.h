/* The part of the HIP runtime API (ROCm 5 and 6) that the runtime uses, declared here so that no HIP
 * headers are required. Its ABI is plain C. */
#ifndef HIP_API_H
#define HIP_API_H

#include <stddef.h>

#ifndef CUDA_API_H
typedef struct dim3 {
  unsigned x, y, z;
} dim3;
#endif

enum {
  HIP_SUCCESS = 0,
  HIP_INVALID_VALUE = 1,
  HIP_OUT_OF_MEMORY = 2,
  HIP_NOT_INITIALIZED = 3,
  HIP_DEINITIALIZED = 4,
  HIP_INVALID_CONFIGURATION = 9,
  HIP_INSUFFICIENT_DRIVER = 35,
  HIP_MISSING_CONFIGURATION = 52,
  HIP_INVALID_DEVICE_FUNCTION = 98,
  HIP_NO_DEVICE = 100,
  HIP_INVALID_IMAGE = 200,
  HIP_INVALID_CONTEXT = 201,
  HIP_NO_BINARY_FOR_GPU = 209,
  HIP_SHARED_OBJECT_INIT_FAILED = 303,
  HIP_INVALID_HANDLE = 400,
  HIP_NOT_READY = 600,
  HIP_ILLEGAL_ADDRESS = 700,
  HIP_LAUNCH_OUT_OF_RESOURCES = 701,
  HIP_CONTEXT_IS_DESTROYED = 709,
  HIP_ASSERT = 710,
  HIP_HOST_MEMORY_REGISTERED = 712,
  HIP_LAUNCH_FAILURE = 719,
  HIP_COOPERATIVE_TOO_LARGE = 720,
  HIP_NOT_SUPPORTED = 801,
};

enum {
  HIP_FUNCTION_MAX_DYNAMIC_SHARED = 8,
  HIP_MEMCPY_DEFAULT = 4,
  HIP_MEM_ATTACH_GLOBAL = 1,
};

/* hipDeviceProp_t of ROCm 5, which the function with this name still fills in ROCm 6. */
typedef struct hip_properties {
  char before_arch[396];
  char arch[256]; /* gcnArchName, a target ID */
  char rest[3444];
} hip_properties;

/* hipPointerAttribute_t. The members after these differ between releases. */
typedef struct hip_pointer {
  int type, device;
  void *on_device, *on_host;
  char rest[104];
} hip_pointer;

const char *hipGetErrorName(int);
const char *hipGetErrorString(int);
int hipGetLastError(void);
int hipRuntimeGetVersion(int *);
int hipGetDeviceCount(int *);
int hipGetDevice(int *);
int hipSetDevice(int);
__attribute__((weak)) int hipGetDeviceProperties(hip_properties *, int device);
int hipStreamCreateWithFlags(void **, unsigned);
int hipStreamSynchronize(void *);
int hipStreamQuery(void *);
int hipStreamWaitEvent(void *stream, void *event, unsigned);
int hipEventCreateWithFlags(void **, unsigned);
int hipEventRecord(void *event, void *stream);
int hipEventSynchronize(void *);
int hipEventQuery(void *);
int hipMalloc(void **, size_t);
int hipMallocManaged(void **, size_t, unsigned);
int hipFree(void *);
/* ROCm 5.1 or newer. */
__attribute__((weak)) int hipMallocAsync(void **, size_t, void *stream);
__attribute__((weak)) int hipFreeAsync(void *, void *stream);
int hipMemGetInfo(size_t *free, size_t *total);
int hipMemcpyAsync(void *, const void *, size_t, int kind, void *stream);
int hipMemsetD8Async(void *, unsigned char, size_t count, void *stream);
int hipMemsetD16Async(void *, unsigned short, size_t count, void *stream);
int hipMemsetD32Async(void *, int, size_t count, void *stream);
int hipHostRegister(void *, size_t, unsigned);
int hipHostUnregister(void *);
int hipHostGetDevicePointer(void **, void *, unsigned);
int hipPointerGetAttributes(hip_pointer *, const void *);
int hipFuncSetAttribute(const void *, int attribute, int value);
int hipLaunchKernel(const void *, dim3 grid, dim3 block, void **params, size_t, void *stream);
int hipLaunchCooperativeKernel(const void *, dim3 grid, dim3 block, void **params, unsigned,
                               void *stream);
int __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *, void **stream);

#endif
