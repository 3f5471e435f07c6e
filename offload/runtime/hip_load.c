/* Loads the HIP runtime at run time, so that a program for several device kinds also starts without ROCm; it
 * then has no HIP devices.
 *
 * The hidden functions in this file replace those of libamdhip64 in the program, including the registration
 * calls of clang-linker-wrapper.
 */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "hip.h"

/* The SONAME of the library that the program was linked for. */
#ifndef MLIR_OFFLOAD_HIP_LIBRARY
#define MLIR_OFFLOAD_HIP_LIBRARY libamdhip64.so
#endif
#define LOAD_TEXT_OF(...) #__VA_ARGS__
#define LOAD_TEXT(...) LOAD_TEXT_OF(__VA_ARGS__)

static void *mo_hip_library;

static void open_hip_library(void) {
  mo_hip_library = dlopen(LOAD_TEXT(MLIR_OFFLOAD_HIP_LIBRARY), RTLD_NOW | RTLD_GLOBAL);
}

/* Returns a function of the library, NULL if there is none. */
static void *hip_function(const char *name) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, open_hip_library);
  return mo_hip_library ? dlsym(mo_hip_library, name) : NULL;
}

#define FORWARD(result, name, parameters, arguments, without)     \
  MO_INTERNAL result name parameters;                             \
  result name parameters {                                        \
    result(*function) parameters;                                 \
    void *found = hip_function(#name);                            \
    memcpy(&function, &found, sizeof found); /* ISO C has no cast for this */ \
    return found ? function arguments : without;                  \
  }
#define FORWARD_STATUS(name, parameters, arguments) \
  FORWARD(int, name, parameters, arguments, HIP_NO_DEVICE)
#define FORWARD_REGISTRATION(name, parameters, arguments)           \
  MO_INTERNAL void name parameters;                                 \
  void name parameters {                                            \
    void(*function) parameters;                                     \
    void *found = hip_function(#name);                              \
    memcpy(&function, &found, sizeof found);                        \
    if (found)                                                      \
      function arguments;                                           \
  }

FORWARD(const char *, hipGetErrorName, (int status), (status),
        status == HIP_NO_DEVICE ? "hipErrorNoDevice" : "hipErrorUnknown")
FORWARD(const char *, hipGetErrorString, (int status), (status), "the HIP runtime was not found")
FORWARD_STATUS(hipGetLastError, (void), ())
FORWARD_STATUS(hipRuntimeGetVersion, (int *version), (version))
FORWARD_STATUS(hipGetDeviceCount, (int *count), (count))
FORWARD_STATUS(hipGetDevice, (int *device), (device))
FORWARD_STATUS(hipSetDevice, (int device), (device))
FORWARD_STATUS(hipGetDeviceProperties, (hip_properties *result, int device), (result, device))
FORWARD_STATUS(hipStreamCreateWithFlags, (void **stream, unsigned flags), (stream, flags))
FORWARD_STATUS(hipStreamSynchronize, (void *stream), (stream))
FORWARD_STATUS(hipStreamQuery, (void *stream), (stream))
FORWARD_STATUS(hipStreamWaitEvent, (void *stream, void *event, unsigned flags),
               (stream, event, flags))
FORWARD_STATUS(hipEventCreateWithFlags, (void **event, unsigned flags), (event, flags))
FORWARD_STATUS(hipEventRecord, (void *event, void *stream), (event, stream))
FORWARD_STATUS(hipEventSynchronize, (void *event), (event))
FORWARD_STATUS(hipEventQuery, (void *event), (event))
FORWARD_STATUS(hipMalloc, (void **pointer, size_t size), (pointer, size))
FORWARD_STATUS(hipMallocManaged, (void **pointer, size_t size, unsigned flags),
               (pointer, size, flags))
FORWARD_STATUS(hipFree, (void *pointer), (pointer))
FORWARD(int, hipMallocAsync, (void **pointer, size_t size, void *stream), (pointer, size, stream),
        HIP_NOT_SUPPORTED)
FORWARD(int, hipFreeAsync, (void *pointer, void *stream), (pointer, stream), HIP_NOT_SUPPORTED)
FORWARD_STATUS(hipMemGetInfo, (size_t *available, size_t *total), (available, total))
FORWARD_STATUS(hipMemcpyAsync,
               (void *target, const void *source, size_t size, int kind, void *stream),
               (target, source, size, kind, stream))
FORWARD_STATUS(hipMemsetD8Async, (void *target, unsigned char value, size_t count, void *stream),
               (target, value, count, stream))
FORWARD_STATUS(hipMemsetD16Async,
               (void *target, unsigned short value, size_t count, void *stream),
               (target, value, count, stream))
FORWARD_STATUS(hipMemsetD32Async, (void *target, int value, size_t count, void *stream),
               (target, value, count, stream))
FORWARD_STATUS(hipHostRegister, (void *pointer, size_t size, unsigned flags),
               (pointer, size, flags))
FORWARD_STATUS(hipHostUnregister, (void *pointer), (pointer))
FORWARD_STATUS(hipHostGetDevicePointer, (void **device, void *host, unsigned flags),
               (device, host, flags))
FORWARD_STATUS(hipPointerGetAttributes, (hip_pointer * result, const void *pointer),
               (result, pointer))
FORWARD_STATUS(hipFuncSetAttribute, (const void *address, int attribute, int value),
               (address, attribute, value))
FORWARD_STATUS(hipLaunchKernel,
               (const void *address, dim3 grid, dim3 block, void **params, size_t shared,
                void *stream),
               (address, grid, block, params, shared, stream))
FORWARD_STATUS(hipLaunchCooperativeKernel,
               (const void *address, dim3 grid, dim3 block, void **params, unsigned shared,
                void *stream),
               (address, grid, block, params, shared, stream))
FORWARD_STATUS(__hipPopCallConfiguration,
               (dim3 *grid, dim3 *block, size_t *shared, void **stream),
               (grid, block, shared, stream))
FORWARD_STATUS(__hipPushCallConfiguration, (dim3 grid, dim3 block, size_t shared, void *stream),
               (grid, block, shared, stream))

FORWARD(void **, __hipRegisterFatBinary, (const void *binary), (binary), NULL)
FORWARD_REGISTRATION(__hipUnregisterFatBinary, (void **module), (module))
FORWARD_STATUS(__hipRegisterFunction,
               (void **module, const void *address, char *host_name, const char *name, int limit,
                void *thread, void *block_index, void *block, void *grid, int *warp),
               (module, address, host_name, name, limit, thread, block_index, block, grid, warp))
FORWARD_REGISTRATION(__hipRegisterVar,
                     (void **module, void *variable, char *host_name, char *name, int is_extern,
                      size_t size, int is_constant, int is_global),
                     (module, variable, host_name, name, is_extern, size, is_constant, is_global))
FORWARD_REGISTRATION(__hipRegisterManagedVar,
                     (void *module, void **pointer, void *initial, const char *name, size_t size,
                      unsigned alignment),
                     (module, pointer, initial, name, size, alignment))
FORWARD_REGISTRATION(__hipRegisterSurface,
                     (void **module, void *variable, char *host_name, char *name, int type,
                      int is_extern),
                     (module, variable, host_name, name, type, is_extern))
FORWARD_REGISTRATION(__hipRegisterTexture,
                     (void **module, void *variable, char *host_name, char *name, int type,
                      int is_normalized, int is_extern),
                     (module, variable, host_name, name, type, is_normalized, is_extern))
