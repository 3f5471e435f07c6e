/* Messages and hints for failed calls of the CUDA runtime API. */
#include <stdarg.h>
#include <stdio.h>

#include "cuda.h"

/* The architectures of the program's device images, defined when the runtime is compiled:
 * -DMLIR_OFFLOAD_ARCHS=sm_80,sm_90 (without quotes, which would have to be escaped). */
#define TEXT_OF(...) #__VA_ARGS__
#define TEXT(...) TEXT_OF(__VA_ARGS__)
#ifdef MLIR_OFFLOAD_ARCHS
static const char mo_archs[] = TEXT(MLIR_OFFLOAD_ARCHS);
#else
static const char mo_archs[] = "unknown";
#endif

#ifdef MLIR_OFFLOAD_HAVE_OPENMP
#define OR_THE_CPU ", or run with MLIR_OFFLOAD_DEVICE=host"
#else
#define OR_THE_CPU ", or compile with --offload-arch=host to run on the CPU"
#endif

/* Writes "sm_75", or "unknown" if the API fails. */
static void describe_arch(char *text, size_t size) {
  int device, major, minor;
  snprintf(text, size, "unknown");
  if (cudaGetDevice(&device) == CUDA_SUCCESS &&
      cudaDeviceGetAttribute(&major, CUDA_ATTRIBUTE_COMPUTE_MAJOR, device) == CUDA_SUCCESS &&
      cudaDeviceGetAttribute(&minor, CUDA_ATTRIBUTE_COMPUTE_MINOR, device) == CUDA_SUCCESS)
    snprintf(text, size, "sm_%d%d", major, minor);
}

static void add_device(void) {
  int device;
  char arch[32];
  describe_arch(arch, sizeof arch);
  if (cudaGetDevice(&device) == CUDA_SUCCESS)
    mo_context("device: cuda:%d (%s)", device, arch);
}

static void add_driver(void) {
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  if (driver)
    mo_context("CUDA runtime %d.%d in this program, driver for CUDA %d.%d", runtime / 1000,
               runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
  else
    mo_context("CUDA runtime %d.%d in this program, no NVIDIA driver found", runtime / 1000,
               runtime % 1000 / 10);
}

/* The oldest driver for each CUDA major release (CUDA compatibility guide, minor version compatibility). */
static int oldest_driver(void) {
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  return runtime >= 13000 ? 580 : runtime >= 12000 ? 525 : 450;
}

MO_NORETURN static void hint_driver(void) {
  add_driver();
  mo_hint("install an NVIDIA driver of version %d or newer" OR_THE_CPU, oldest_driver());
}

MO_NORETURN static void hint_image(void) {
  char arch[32];
  describe_arch(arch, sizeof arch);
  mo_context("no kernel image for this device: image has %s, device is %s", mo_archs, arch);
  mo_hint("add --offload-arch=%s when compiling" OR_THE_CPU, arch);
}

MO_NORETURN static void hint_memory(void) {
  size_t available, total;
  if (cudaMemGetInfo(&available, &total) == CUDA_SUCCESS)
    mo_context("memory: %zu of %zu bytes free", available, total);
  mo_hint("use less memory at a time, free what is no longer needed, or end other programs that "
          "use this GPU (nvidia-smi lists them)");
}

MO_NORETURN static void hint_shape(void) {
  int device = 0, most_shared = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most_shared, CUDA_ATTRIBUTE_MAX_SHARED_OPTIN, device);
  if (most_shared)
    mo_context("limits: 1024 threads per block, %d bytes of shared memory per block", most_shared);
  mo_hint("launch smaller blocks, or use less shared memory or fewer registers");
}

MO_NORETURN static void hint_fault(void) {
  mo_hint("the error belongs to a kernel or copy that was started earlier: run with "
          "CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer to find it");
}

MO_NORETURN static void hint(int status) {
  switch (status) {
  case CUDA_INSUFFICIENT_DRIVER:
  case CUDA_UNSUPPORTED_PTX:
    hint_driver();
  case CUDA_DRIVER_MISMATCH:
    mo_hint("the loaded kernel module and libcuda differ: reboot, or reload the nvidia module");
  case CUDA_NO_DEVICE:
    add_driver();
    mo_hint("check nvidia-smi and CUDA_VISIBLE_DEVICES" OR_THE_CPU);
  case CUDA_DEVICES_UNAVAILABLE:
    mo_hint("another program holds the GPU for itself (see nvidia-smi)" OR_THE_CPU);
  case CUDA_NO_KERNEL_IMAGE:
  case CUDA_INVALID_DEVICE_FUNCTION:
    hint_image();
  case CUDA_MEMORY_ALLOCATION:
    hint_memory();
  case CUDA_LAUNCH_OUT_OF_RESOURCES:
  case CUDA_INVALID_CONFIGURATION:
    hint_shape();
  case CUDA_ILLEGAL_ADDRESS:
  case CUDA_MISALIGNED_ADDRESS:
  case CUDA_LAUNCH_FAILURE:
    hint_fault();
  case CUDA_ASSERT:
    mo_hint("an assertion in a kernel failed: its message is above");
  case CUDA_COOPERATIVE_TOO_LARGE:
    mo_hint("a cooperative grid must fit on the GPU all at once: launch fewer blocks");
  case CUDA_HOST_MEMORY_REGISTERED:
    mo_hint("register each piece of host memory once, and unregister it before the next time");
  case CUDA_MISSING_CONFIGURATION:
    mo_hint("call the kernel's stub by <<<grid, block>>> from CUDA C++, not as a function");
  case CUDA_NOT_SUPPORTED:
    mo_hint("this GPU or driver cannot do it: choose another device" OR_THE_CPU);
  default:
    mo_hint("look the error up in the CUDA runtime API manual (cudaError_t)");
  }
}

static void report_call(int status, const char *call) {
  mo_error("%s failed: %s (%s)", call, cudaGetErrorName(status), cudaGetErrorString(status));
}

void mo_cuda_stop(int status, const char *call, const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  report_call(status, call);
  mo_context("while %s", text);
  add_device();
  hint(status);
}

void mo_cuda_stop_launch(int status, const char *call, const void *stub, const mo_shape *shape) {
  report_call(status, call);
  mo_context_of_launch(stub, shape);
  add_device();
  if (status == CUDA_INVALID_VALUE)
    hint_shape();
  hint(status);
}

void mo_cuda_explain_no_device(void) {
  int count = 0, status = cudaGetDeviceCount(&count);
  report_call(status ? status : CUDA_NO_DEVICE, "cudaGetDeviceCount");
  mo_context("while looking for a GPU");
  hint(status ? status : CUDA_NO_DEVICE);
}
