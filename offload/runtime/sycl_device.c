/* The usable OpenCL devices: GPUs first, then accelerators, then CPUs. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "catch.h"
#include "sycl.h"

enum { MOST_PLATFORMS = 16, MOST_DEVICES = 64, MOST_DEVICES_OF_PLATFORM = 32 };

static mo_sycl_platform mo_sycl_platforms[MOST_PLATFORMS];
static unsigned mo_sycl_platform_count;
static mo_sycl_device mo_sycl_devices[MOST_DEVICES];
static int mo_sycl_device_count;
static pthread_mutex_t mo_sycl_device_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local int mo_sycl_index;

/* Returns NULL, or a feature that the device lacks. */
static const char *lack_of(const mo_sycl_platform *platform, cl_device_id device) {
  static char extensions[1 << 14]; /* static, because only one thread enumerates devices or reports an error */
  char il[256];
  mo_sycl_device_text(device, CL_DEVICE_EXTENSIONS, extensions, sizeof extensions);
  mo_sycl_device_text(device, CL_DEVICE_IL_VERSION, il, sizeof il);
  if (!strstr(extensions, "cl_intel_unified_shared_memory"))
    return "cl_intel_unified_shared_memory";
  if (!strstr(il, "SPIR-V"))
    return "SPIR-V";
#define CHECK_FUNCTION(result, name, parameters) \
  if (!platform->usm.name)                       \
    return #name;
  USM_FUNCTIONS(CHECK_FUNCTION)
#undef CHECK_FUNCTION
  return NULL;
}

typedef void device_visitor(mo_sycl_platform *platform, cl_device_id device, uint64_t type);

static void each_device(device_visitor *visit) {
  static const uint64_t types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR,
                                   CL_DEVICE_TYPE_CPU};
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i)
    for (unsigned j = 0; j < mo_sycl_platform_count; ++j) {
      mo_sycl_platform *platform = &mo_sycl_platforms[j];
      cl_device_id found[MOST_DEVICES_OF_PLATFORM];
      unsigned count = 0;
      if (mo_cl.clGetDeviceIDs(platform->raw, types[i], MOST_DEVICES_OF_PLATFORM, found, &count) !=
          CL_SUCCESS)
        continue; /* CL_DEVICE_NOT_FOUND: none of this type */
      for (unsigned k = 0; k < count && k < MOST_DEVICES_OF_PLATFORM; ++k)
        visit(platform, found[k], types[i]);
    }
}

static void add_usable(mo_sycl_platform *platform, cl_device_id device, uint64_t type) {
  if (mo_sycl_device_count < MOST_DEVICES && !lack_of(platform, device))
    mo_sycl_devices[mo_sycl_device_count++] =
        (mo_sycl_device){.raw = device, .platform = platform, .type = type};
}

static void find_devices(void) {
  cl_platform_id platforms[MOST_PLATFORMS];
  unsigned count = 0;
  if (mo_sycl_load() ||
      mo_cl.clGetPlatformIDs(MOST_PLATFORMS, platforms, &count) != CL_SUCCESS)
    return;
  mo_sycl_platform_count = count < MOST_PLATFORMS ? count : MOST_PLATFORMS;
  for (unsigned i = 0; i < mo_sycl_platform_count; ++i) {
    mo_sycl_platform *platform = &mo_sycl_platforms[i];
    platform->raw = platforms[i];
#define FIND_FUNCTION(result, name, parameters)                                            \
  {                                                                                        \
    void *found = mo_cl.clGetExtensionFunctionAddressForPlatform(platform->raw, #name);    \
    memcpy(&platform->usm.name, &found, sizeof found);                                     \
  }
    USM_FUNCTIONS(FIND_FUNCTION)
#undef FIND_FUNCTION
  }
  each_device(add_usable);
}

int mo_sycl_count_devices(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_devices);
  return mo_sycl_device_count;
}

int mo_sycl_count_gpus(void) {
  int count = 0;
  for (int i = 0; i < mo_sycl_count_devices(); ++i)
    count += mo_sycl_devices[i].type == CL_DEVICE_TYPE_GPU;
  return count;
}

/* Returns the index of a device among all: GPUs first, then accelerators, then CPUs. */
int mo_sycl_find_device(mo_device_class of, int number) {
  static const uint64_t types[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR,
                                   CL_DEVICE_TYPE_CPU};
  static const char *const names[] = {"GPU", "accelerator", "CPU"};
  int count = 0;
  for (int i = 0; i < mo_sycl_count_devices(); ++i)
    if (mo_sycl_devices[i].type == types[of] && count++ == number)
      return i;
  mo_error("there is no %s %d: OpenCL has %d that can be used", names[of], number, count);
  mo_hint("choose another device, by MLIR_OFFLOAD_DEVICE or mlir_offload_set_device");
}

static void tell_unusable(mo_sycl_platform *platform, cl_device_id device, uint64_t type) {
  char name[256];
  const char *lack = lack_of(platform, device);
  (void)type;
  mo_sycl_device_text(device, CL_DEVICE_NAME, name, sizeof name);
  if (lack)
    mo_context("'%s' cannot be used: it has no %s", name, lack);
}

void mo_sycl_explain_no_device(void) {
  const char *fault = mo_sycl_load();
  unsigned count = 0;
  int status = fault ? CL_SUCCESS : mo_cl.clGetPlatformIDs(0, NULL, &count);
  if (fault)
    mo_error("there is no OpenCL here: %s", fault);
  else if (status != CL_SUCCESS)
    mo_sycl_report_call(status, "clGetPlatformIDs");
  else
    mo_error("no OpenCL device can be used, on %u OpenCL platform%s", count, count == 1 ? "" : "s");
  mo_context("while looking for a GPU");
  if (!fault)
    each_device(tell_unusable);
  const char *vendors = getenv("OCL_ICD_VENDORS");
  if (vendors)
    mo_context("OCL_ICD_VENDORS is '%s'", vendors);
  mo_hint("install the OpenCL driver of the GPU (apt install intel-opencl-icd ocl-icd-libopencl1; "
          "for the CPU pip install intel-opencl-rt intel-cmplr-lib-rt), and check with clinfo, and whether you may "
          "open /dev/dri/renderD128" SYCL_OR_THE_CPU);
}

void mo_sycl_set_device(int index) { mo_sycl_index = index; }
int mo_sycl_device_index(void) { return mo_sycl_index; }

/* Creates the context of the platform, unless it exists. The caller must hold the lock. */
static void make_context(mo_sycl_platform *platform) {
  cl_device_id devices[MOST_DEVICES];
  unsigned count = 0;
  int status;
  if (platform->context)
    return;
  for (int i = 0; i < mo_sycl_device_count; ++i)
    if (mo_sycl_devices[i].platform == platform)
      devices[count++] = mo_sycl_devices[i].raw;
  platform->context = mo_cl.clCreateContext(NULL, count, devices, NULL, NULL, &status);
  SYCL_CHECK(status, "clCreateContext", "starting OpenCL");
}

mo_sycl_device *mo_sycl_own_device(void) {
  mo_sycl_device *device = &mo_sycl_devices[mo_sycl_index];
  mo_sycl_note_device(device->raw, mo_sycl_index);
  mo_lock(&mo_sycl_device_lock);
  make_context(device->platform);
  mo_unlock(&mo_sycl_device_lock);
  return device;
}

mo_sycl_place mo_sycl_own_place(void) {
  const mo_sycl_device *device = mo_sycl_own_device();
  return (mo_sycl_place){device->platform, device->platform->context, device->raw, NULL};
}

/* The queue of a caller may also be for a subdevice, which is not in the list. */
const mo_sycl_platform *mo_sycl_use_device(cl_device_id device) {
  cl_platform_id raw;
  int number = mo_sycl_device_count;
  while (number-- && mo_sycl_devices[number].raw != device)
    ;
  mo_sycl_note_device(device, number);
  if (number >= 0)
    return mo_sycl_devices[number].platform;
  SYCL_CHECK(mo_cl.clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof raw, &raw, NULL),
             "clGetDeviceInfo", "looking for the platform of a stream");
  for (int i = 0; i < mo_sycl_device_count; ++i)
    if (mo_sycl_devices[i].platform->raw == raw)
      return mo_sycl_devices[i].platform;
  mo_error("the caller's stream belongs to an OpenCL device that cannot be used");
  mo_hint("make the queue for a device with SPIR-V and cl_intel_unified_shared_memory");
}

