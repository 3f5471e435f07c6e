/* Messages and hints for failed calls of the HIP runtime API. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "hip.h"

/* The architectures of the program's device images, defined when the runtime is compiled:
 * -DMLIR_OFFLOAD_HIP_ARCHS=gfx90a,gfx1100 (without quotes, which would have to be escaped). */
#define HIP_TEXT_OF(...) #__VA_ARGS__
#define HIP_TEXT(...) HIP_TEXT_OF(__VA_ARGS__)
#ifdef MLIR_OFFLOAD_HIP_ARCHS
static const char mo_hip_archs[] = HIP_TEXT(MLIR_OFFLOAD_HIP_ARCHS);
#else
static const char mo_hip_archs[] = "unknown";
#endif

#ifdef MLIR_OFFLOAD_HAVE_OPENMP
#define HIP_OR_THE_CPU ", or run with MLIR_OFFLOAD_DEVICE=host"
#else
#define HIP_OR_THE_CPU ", or compile with --offload-arch=host to run on the CPU"
#endif

/* Writes "gfx90a:sramecc+:xnack-", or "unknown" if the API fails. */
static void describe_hip_arch(char *text, size_t size) {
  static hip_properties properties;
  int device;
  snprintf(text, size, "unknown");
  if (hipGetDeviceProperties && hipGetDevice(&device) == HIP_SUCCESS &&
      hipGetDeviceProperties(&properties, device) == HIP_SUCCESS &&
      !strncmp(properties.arch, "gfx", 3))
    snprintf(text, size, "%.*s", (int)sizeof properties.arch, properties.arch);
}

static void add_hip_device(void) {
  int device;
  char arch[300];
  if (hipGetDevice(&device) != HIP_SUCCESS)
    return;
  describe_hip_arch(arch, sizeof arch);
  mo_context("device: hip:%d (%s)", device, arch);
}

MO_NORETURN static void hint_no_hip_device(void) {
  mo_context("there is no ROCm-capable device that this program may use");
  mo_hint("check rocminfo, ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES, and whether you may open "
          "/dev/kfd" HIP_OR_THE_CPU);
}

MO_NORETURN static void hint_hip_image(void) {
  char arch[300];
  describe_hip_arch(arch, sizeof arch);
  mo_context("no kernel image for this device: image has %s, device is %s", mo_hip_archs, arch);
  mo_hint("add --offload-arch=%s when compiling" HIP_OR_THE_CPU,
          strncmp(arch, "gfx", 3) ? "gfxNNN" : arch);
}

MO_NORETURN static void hint_hip_memory(void) {
  size_t available, total;
  if (hipMemGetInfo(&available, &total) == HIP_SUCCESS)
    mo_context("memory: %zu of %zu bytes free", available, total);
  mo_hint("use less memory at a time, free what is no longer needed, or end other programs that "
          "use this GPU (rocm-smi lists them)");
}

MO_NORETURN static void hint_hip(int status) {
  switch (status) {
  case HIP_NO_DEVICE:
  case HIP_NOT_INITIALIZED:
  case HIP_INSUFFICIENT_DRIVER:
    hint_no_hip_device();
  case HIP_NO_BINARY_FOR_GPU:
  case HIP_INVALID_DEVICE_FUNCTION:
  case HIP_INVALID_IMAGE:
  case HIP_SHARED_OBJECT_INIT_FAILED:
    hint_hip_image();
  case HIP_OUT_OF_MEMORY:
    hint_hip_memory();
  case HIP_INVALID_CONFIGURATION:
  case HIP_LAUNCH_OUT_OF_RESOURCES:
    mo_hint("launch smaller blocks (at most 1024 threads), or use less shared memory (at most "
            "64 KiB for a block) or fewer registers");
  case HIP_ILLEGAL_ADDRESS:
  case HIP_LAUNCH_FAILURE:
    mo_hint("the error belongs to a kernel or copy that was started earlier: run with "
            "AMD_SERIALIZE_KERNEL=3 AMD_SERIALIZE_COPY=3 or under rocgdb to find it");
  case HIP_ASSERT:
    mo_hint("an assertion in a kernel failed: its message is above");
  case HIP_COOPERATIVE_TOO_LARGE:
    mo_hint("a cooperative grid must fit on the GPU all at once: launch fewer blocks");
  case HIP_HOST_MEMORY_REGISTERED:
    mo_hint("register each piece of host memory once, and unregister it before the next time");
  case HIP_MISSING_CONFIGURATION:
    mo_hint("call the kernel's stub by <<<grid, block>>> from HIP C++, not as a function");
  case HIP_NOT_SUPPORTED:
    mo_hint("this GPU or driver cannot do it: choose another device" HIP_OR_THE_CPU);
  default:
    mo_hint("look the error up in the manual of the HIP runtime API (hipError_t)");
  }
}

static void report_hip_call(int status, const char *call) {
  mo_error("%s failed: %s (%s)", call, hipGetErrorName(status), hipGetErrorString(status));
}

void mo_hip_stop(int status, const char *call, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  report_hip_call(status, call);
  mo_context("while %s", text);
  add_hip_device();
  hint_hip(status);
}

void mo_hip_stop_launch(int status, const char *call, const void *address, const mo_shape *shape) {
  report_hip_call(status, call);
  mo_context_of_launch(address, shape);
  add_hip_device();
  hint_hip(status == HIP_INVALID_VALUE ? HIP_INVALID_CONFIGURATION : status);
}

void mo_hip_explain_no_device(void) {
  int count = 0, status = hipGetDeviceCount(&count);
  report_hip_call(status ? status : HIP_NO_DEVICE, "hipGetDeviceCount");
  mo_context("while looking for a GPU");
  hint_hip(status ? status : HIP_NO_DEVICE);
}
