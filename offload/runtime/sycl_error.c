/* Messages and hints for failed calls of OpenCL. */
#include <stdarg.h>
#include <stdio.h>

#include "sycl.h"

/* OpenCL has no function for the names of errors (CL/cl.h, CL/cl_ext.h). */
static const char *opencl_error_name(int status) {
#define NAME_ERROR(number, name) \
  case number:                   \
    return #name;
  switch (status) {
    NAME_ERROR(-1, CL_DEVICE_NOT_FOUND)
    NAME_ERROR(-2, CL_DEVICE_NOT_AVAILABLE)
    NAME_ERROR(-3, CL_COMPILER_NOT_AVAILABLE)
    NAME_ERROR(-4, CL_MEM_OBJECT_ALLOCATION_FAILURE)
    NAME_ERROR(-5, CL_OUT_OF_RESOURCES)
    NAME_ERROR(-6, CL_OUT_OF_HOST_MEMORY)
    NAME_ERROR(-7, CL_PROFILING_INFO_NOT_AVAILABLE)
    NAME_ERROR(-8, CL_MEM_COPY_OVERLAP)
    NAME_ERROR(-11, CL_BUILD_PROGRAM_FAILURE)
    NAME_ERROR(-12, CL_MAP_FAILURE)
    NAME_ERROR(-13, CL_MISALIGNED_SUB_BUFFER_OFFSET)
    NAME_ERROR(-14, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    NAME_ERROR(-15, CL_COMPILE_PROGRAM_FAILURE)
    NAME_ERROR(-16, CL_LINKER_NOT_AVAILABLE)
    NAME_ERROR(-17, CL_LINK_PROGRAM_FAILURE)
    NAME_ERROR(-19, CL_KERNEL_ARG_INFO_NOT_AVAILABLE)
    NAME_ERROR(-30, CL_INVALID_VALUE)
    NAME_ERROR(-31, CL_INVALID_DEVICE_TYPE)
    NAME_ERROR(-32, CL_INVALID_PLATFORM)
    NAME_ERROR(-33, CL_INVALID_DEVICE)
    NAME_ERROR(-34, CL_INVALID_CONTEXT)
    NAME_ERROR(-35, CL_INVALID_QUEUE_PROPERTIES)
    NAME_ERROR(-36, CL_INVALID_COMMAND_QUEUE)
    NAME_ERROR(-37, CL_INVALID_HOST_PTR)
    NAME_ERROR(-38, CL_INVALID_MEM_OBJECT)
    NAME_ERROR(-42, CL_INVALID_BINARY)
    NAME_ERROR(-43, CL_INVALID_BUILD_OPTIONS)
    NAME_ERROR(-44, CL_INVALID_PROGRAM)
    NAME_ERROR(-45, CL_INVALID_PROGRAM_EXECUTABLE)
    NAME_ERROR(-46, CL_INVALID_KERNEL_NAME)
    NAME_ERROR(-47, CL_INVALID_KERNEL_DEFINITION)
    NAME_ERROR(-48, CL_INVALID_KERNEL)
    NAME_ERROR(-49, CL_INVALID_ARG_INDEX)
    NAME_ERROR(-50, CL_INVALID_ARG_VALUE)
    NAME_ERROR(-51, CL_INVALID_ARG_SIZE)
    NAME_ERROR(-52, CL_INVALID_KERNEL_ARGS)
    NAME_ERROR(-53, CL_INVALID_WORK_DIMENSION)
    NAME_ERROR(-54, CL_INVALID_WORK_GROUP_SIZE)
    NAME_ERROR(-55, CL_INVALID_WORK_ITEM_SIZE)
    NAME_ERROR(-56, CL_INVALID_GLOBAL_OFFSET)
    NAME_ERROR(-57, CL_INVALID_EVENT_WAIT_LIST)
    NAME_ERROR(-58, CL_INVALID_EVENT)
    NAME_ERROR(-59, CL_INVALID_OPERATION)
    NAME_ERROR(-61, CL_INVALID_BUFFER_SIZE)
    NAME_ERROR(-63, CL_INVALID_GLOBAL_WORK_SIZE)
    NAME_ERROR(-64, CL_INVALID_PROPERTY)
    NAME_ERROR(-66, CL_INVALID_COMPILER_OPTIONS)
    NAME_ERROR(-67, CL_INVALID_LINKER_OPTIONS)
    NAME_ERROR(-68, CL_INVALID_DEVICE_PARTITION_COUNT)
    NAME_ERROR(-71, CL_INVALID_SPEC_ID)
    NAME_ERROR(-72, CL_MAX_SIZE_RESTRICTION_EXCEEDED)
    NAME_ERROR(-1001, CL_PLATFORM_NOT_FOUND_KHR)
  }
#undef NAME_ERROR
  return NULL;
}

void mo_sycl_report_call(int status, const char *call) {
  const char *name = opencl_error_name(status);
  if (name)
    mo_error("%s failed: %s", call, name);
  else
    mo_error("%s failed: OpenCL error %d", call, status);
}

/* The device that the thread last used. */
static _Thread_local cl_device_id mo_sycl_used;
static _Thread_local int mo_sycl_used_number;

void mo_sycl_note_device(cl_device_id device, int number) {
  mo_sycl_used = device;
  mo_sycl_used_number = number;
}

void mo_sycl_device_text(cl_device_id device, unsigned what, char *text, size_t size) {
  size_t length = 0;
  *text = 0;
  if (mo_cl.clGetDeviceInfo(device, what, size, text, &length) != CL_SUCCESS || length >= size)
    *text = 0;
}

void mo_sycl_context_of_device(void) {
  char name[256], driver[64];
  cl_device_id device = mo_sycl_used;
  if (!device)
    return;
  mo_sycl_device_text(device, CL_DEVICE_NAME, name, sizeof name);
  mo_sycl_device_text(device, CL_DRIVER_VERSION, driver, sizeof driver);
  if (mo_sycl_used_number < 0)
    mo_context("device: a part of %s, driver %s", name, driver);
  else
    mo_context("device: sycl:%d (%s, driver %s)", mo_sycl_used_number, name, driver);
}

MO_NORETURN static void hint_sycl_memory(void) {
  cl_device_id device = mo_sycl_used;
  uint64_t total = 0, most = 0;
  if (device &&
      mo_cl.clGetDeviceInfo(device, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof total, &total, NULL) ==
          CL_SUCCESS &&
      mo_cl.clGetDeviceInfo(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL) ==
          CL_SUCCESS)
    mo_context("memory: %llu bytes, at most %llu of them at a time", (unsigned long long)total,
               (unsigned long long)most);
  mo_hint("use less memory at a time, free what is no longer needed, or end other programs that "
          "use this device");
}

void mo_sycl_cure(int status) {
  switch (status) {
  case CL_MEM_OBJECT_ALLOCATION_FAILURE:
  case CL_INVALID_BUFFER_SIZE:
  case CL_OUT_OF_HOST_MEMORY:
    hint_sycl_memory();
  case CL_OUT_OF_RESOURCES:
    mo_hint("launch smaller blocks, or use less shared memory; else a kernel that was started "
            "earlier has failed or the device is out of memory");
  case CL_BUILD_PROGRAM_FAILURE:
  case CL_INVALID_BINARY:
  case CL_INVALID_PROGRAM_EXECUTABLE:
    mo_hint("the device cannot run this SPIR-V: install a newer driver, or keep what the build log "
            "names out of the kernel" SYCL_OR_THE_CPU);
  case CL_INVALID_WORK_GROUP_SIZE:
  case CL_INVALID_WORK_ITEM_SIZE:
    mo_hint("launch smaller blocks, or blocks of the size that the kernel was compiled for");
  case CL_INVALID_ARG_VALUE:
    mo_hint("pass memory that the device reaches: from gpu.alloc, or from the unified shared memory "
            "of the stream's context");
  case CL_INVALID_ARG_SIZE:
  case CL_INVALID_KERNEL_ARGS:
    mo_hint("the kernel's parameters are not those of its launch: compile both again with one "
            "release of mlir-offload");
  case CL_INVALID_OPERATION:
    mo_hint("this device or driver cannot do it: choose another device" SYCL_OR_THE_CPU);
  default:
    mo_hint("look the error up in the OpenCL reference, under the function that failed");
  }
}

void mo_sycl_stop(int status, const char *call, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  mo_sycl_report_call(status, call);
  mo_context("while %s", text);
  mo_sycl_context_of_device();
  mo_sycl_cure(status);
}
