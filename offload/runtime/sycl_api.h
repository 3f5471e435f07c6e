/* The part of OpenCL and of cl_intel_unified_shared_memory that the runtime uses, with the declarations of the
 * Khronos headers (CL/cl.h, CL/cl_ext.h), so that no OpenCL headers are required. */
#ifndef SYCL_API_H
#define SYCL_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct _cl_platform_id *cl_platform_id;
typedef struct _cl_device_id *cl_device_id;
typedef struct _cl_context *cl_context;
typedef struct _cl_command_queue *cl_command_queue;
typedef struct _cl_program *cl_program;
typedef struct _cl_kernel *cl_kernel;
typedef struct _cl_event *cl_event;

enum {
  CL_SUCCESS = 0,
  CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
  CL_OUT_OF_RESOURCES = -5,
  CL_OUT_OF_HOST_MEMORY = -6,
  CL_BUILD_PROGRAM_FAILURE = -11,
  CL_INVALID_BINARY = -42,
  CL_INVALID_PROGRAM_EXECUTABLE = -45,
  CL_INVALID_ARG_VALUE = -50,
  CL_INVALID_ARG_SIZE = -51,
  CL_INVALID_KERNEL_ARGS = -52,
  CL_INVALID_WORK_GROUP_SIZE = -54,
  CL_INVALID_WORK_ITEM_SIZE = -55,
  CL_INVALID_OPERATION = -59,
  CL_INVALID_BUFFER_SIZE = -61,
  CL_PLATFORM_NOT_FOUND = -1001,

  CL_COMPLETE = 0,
};

#define CL_DEVICE_TYPE_CPU (UINT64_C(1) << 1)
#define CL_DEVICE_TYPE_GPU (UINT64_C(1) << 2)
#define CL_DEVICE_TYPE_ACCELERATOR (UINT64_C(1) << 3)
#define CL_QUEUE_OUT_OF_ORDER UINT64_C(1)

/* The properties that the runtime queries with clGet...Info. */
enum {
  CL_DEVICE_TYPE = 0x1000,
  CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
  CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
  CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
  CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
  CL_DEVICE_NAME = 0x102B,
  CL_DRIVER_VERSION = 0x102D,
  CL_DEVICE_EXTENSIONS = 0x1030,
  CL_DEVICE_PLATFORM = 0x1031,
  CL_DEVICE_IL_VERSION = 0x105B,
  CL_QUEUE_CONTEXT = 0x1090,
  CL_QUEUE_DEVICE = 0x1091,
  CL_QUEUE_PROPERTIES = 0x1093,
  CL_PROGRAM_BUILD_LOG = 0x1183,
  CL_KERNEL_WORK_GROUP_SIZE = 0x11B0,
  CL_KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11B1,
  CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2,
  CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE = 0x2034,
  CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL = 0x410A,
  CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
  CL_EVENT_CONTEXT = 0x11D4,

  CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES = 0x4194,
  CL_MEM_ALLOC_TYPE = 0x419A,
  CL_MEM_TYPE_UNKNOWN = 0x4196,
  CL_KERNEL_INDIRECT_HOST_ACCESS = 0x4200,
  CL_KERNEL_INDIRECT_DEVICE_ACCESS = 0x4201,
  CL_KERNEL_INDIRECT_SHARED_ACCESS = 0x4202,
};

/* Functions of libOpenCL: FUNCTION(result, name, parameters). */
#define OPENCL_FUNCTIONS(FUNCTION)                                                               \
  FUNCTION(int, clGetPlatformIDs, (unsigned, cl_platform_id *, unsigned *))                      \
  FUNCTION(int, clGetDeviceIDs, (cl_platform_id, uint64_t, unsigned, cl_device_id *, unsigned *)) \
  FUNCTION(int, clGetDeviceInfo, (cl_device_id, unsigned, size_t, void *, size_t *))             \
  FUNCTION(void *, clGetExtensionFunctionAddressForPlatform, (cl_platform_id, const char *))     \
  FUNCTION(cl_context, clCreateContext,                                                          \
           (const intptr_t *, unsigned, const cl_device_id *, void *, void *, int *))            \
  FUNCTION(cl_command_queue, clCreateCommandQueueWithProperties,                                 \
           (cl_context, cl_device_id, const uint64_t *, int *))                                  \
  FUNCTION(int, clGetCommandQueueInfo, (cl_command_queue, unsigned, size_t, void *, size_t *))   \
  FUNCTION(int, clFlush, (cl_command_queue))                                                     \
  FUNCTION(int, clFinish, (cl_command_queue))                                                    \
  FUNCTION(cl_program, clCreateProgramWithIL, (cl_context, const void *, size_t, int *))         \
  FUNCTION(int, clBuildProgram,                                                                  \
           (cl_program, unsigned, const cl_device_id *, const char *, void *, void *))           \
  FUNCTION(int, clGetProgramBuildInfo,                                                           \
           (cl_program, cl_device_id, unsigned, size_t, void *, size_t *))                       \
  FUNCTION(cl_kernel, clCreateKernel, (cl_program, const char *, int *))                         \
  FUNCTION(int, clSetKernelArg, (cl_kernel, unsigned, size_t, const void *))                     \
  FUNCTION(int, clSetKernelExecInfo, (cl_kernel, unsigned, size_t, const void *))                \
  FUNCTION(int, clGetKernelWorkGroupInfo,                                                        \
           (cl_kernel, cl_device_id, unsigned, size_t, void *, size_t *))                        \
  FUNCTION(int, clGetKernelSubGroupInfo,                                                         \
           (cl_kernel, cl_device_id, unsigned, size_t, const void *, size_t, void *, size_t *))  \
  FUNCTION(int, clEnqueueNDRangeKernel,                                                          \
           (cl_command_queue, cl_kernel, unsigned, const size_t *, const size_t *,               \
            const size_t *, unsigned, const cl_event *, cl_event *))                             \
  FUNCTION(int, clEnqueueMarkerWithWaitList,                                                     \
           (cl_command_queue, unsigned, const cl_event *, cl_event *))                           \
  FUNCTION(int, clEnqueueBarrierWithWaitList,                                                    \
           (cl_command_queue, unsigned, const cl_event *, cl_event *))                           \
  FUNCTION(int, clWaitForEvents, (unsigned, const cl_event *))                                   \
  FUNCTION(int, clGetEventInfo, (cl_event, unsigned, size_t, void *, size_t *))                  \
  FUNCTION(int, clRetainEvent, (cl_event))                                                       \
  FUNCTION(int, clReleaseEvent, (cl_event))

/* Functions of cl_intel_unified_shared_memory, which are specific to a platform. */
#define USM_FUNCTIONS(FUNCTION)                                                                  \
  FUNCTION(void *, clDeviceMemAllocINTEL,                                                        \
           (cl_context, cl_device_id, const uint64_t *, size_t, unsigned, int *))                \
  FUNCTION(void *, clSharedMemAllocINTEL,                                                        \
           (cl_context, cl_device_id, const uint64_t *, size_t, unsigned, int *))                \
  FUNCTION(int, clMemBlockingFreeINTEL, (cl_context, void *))                                    \
  FUNCTION(int, clGetMemAllocInfoINTEL,                                                          \
           (cl_context, const void *, unsigned, size_t, void *, size_t *))                       \
  FUNCTION(int, clSetKernelArgMemPointerINTEL, (cl_kernel, unsigned, const void *))              \
  FUNCTION(int, clEnqueueMemcpyINTEL,                                                            \
           (cl_command_queue, unsigned is_blocking, void *, const void *, size_t, unsigned,      \
            const cl_event *, cl_event *))                                                       \
  FUNCTION(int, clEnqueueMemFillINTEL,                                                           \
           (cl_command_queue, void *, const void *pattern, size_t pattern_bytes, size_t,         \
            unsigned, const cl_event *, cl_event *))

#define FUNCTION_MEMBER(result, name, parameters) result(*name) parameters;
typedef struct opencl_functions {
  OPENCL_FUNCTIONS(FUNCTION_MEMBER)
} opencl_functions;
typedef struct usm_functions {
  USM_FUNCTIONS(FUNCTION_MEMBER)
} usm_functions;
#undef FUNCTION_MEMBER

#endif
