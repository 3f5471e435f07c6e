/* Kind sycl: OpenCL with unified shared memory (cl_intel_unified_shared_memory), which Intel's drivers for GPUs
 * and CPUs support. Kernels are looked up by the name in their offload entry. */
#include "sycl.h"

static void *sycl_allocate(uint64_t size_bytes, bool is_host_shared, void *stream) {
  mo_sycl_place place = mo_sycl_place_of_memory(stream);
  const usm_functions *usm = &place.platform->usm;
  int status;
  void *pointer;
  if (!size_bytes)
    return NULL;
  pointer = (is_host_shared ? usm->clSharedMemAllocINTEL : usm->clDeviceMemAllocINTEL)(
      place.context, place.device, NULL, size_bytes, 0, &status);
  SYCL_CHECK(status, is_host_shared ? "clSharedMemAllocINTEL" : "clDeviceMemAllocINTEL",
             "allocating %llu bytes%s", (unsigned long long)size_bytes,
             is_host_shared ? " shared with the host" : "");
  return pointer;
}

static bool holds(const mo_sycl_place *place, const void *pointer) {
  unsigned type = CL_MEM_TYPE_UNKNOWN;
  SYCL_CHECK(place->platform->usm.clGetMemAllocInfoINTEL(place->context, pointer,
                                                         CL_MEM_ALLOC_TYPE, sizeof type, &type,
                                                         NULL),
             "clGetMemAllocInfoINTEL", "looking at the memory at %p", pointer);
  return type != CL_MEM_TYPE_UNKNOWN;
}

/* Memory that was allocated before the thread set another stream belongs to the default context of the device. */
static void sycl_release(void *pointer, void *stream) {
  mo_sycl_place place = mo_sycl_place_of_memory(stream);
  if (!holds(&place, pointer))
    place = mo_sycl_own_place();
  SYCL_CHECK(place.platform->usm.clMemBlockingFreeINTEL(place.context, pointer),
             "clMemBlockingFreeINTEL", "freeing %p", pointer);
}

static void sycl_copy(void *target, const void *source, size_t size_bytes, void *stream) {
  mo_sycl_place place = mo_sycl_place_of(stream);
  SYCL_CHECK(place.platform->usm.clEnqueueMemcpyINTEL(place.queue, 0, target, source, size_bytes,
                                                      0, NULL, NULL),
             "clEnqueueMemcpyINTEL", "copying %zu bytes from %p to %p", size_bytes, source, target);
  mo_sycl_start(place.queue);
}

static void sycl_fill(void *target, uint64_t value, size_t width, size_t count, void *stream) {
  mo_sycl_place place = mo_sycl_place_of(stream);
  SYCL_CHECK(place.platform->usm.clEnqueueMemFillINTEL(place.queue, target, &value, width,
                                                       width * count, 0, NULL, NULL),
             "clEnqueueMemFillINTEL", "setting %zu values at %p", count, target);
  mo_sycl_start(place.queue);
}

static bool reaches_host(const mo_sycl_place *place) {
  uint64_t capabilities = 0;
  SYCL_CHECK(mo_cl.clGetDeviceInfo(place->device, CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES,
                                   sizeof capabilities, &capabilities, NULL),
             "clGetDeviceInfo", "asking whether a device reaches host memory");
  return capabilities != 0;
}

/* OpenCL cannot register existing memory: the device can access all host memory, or none. */
static void sycl_register_host(void *pointer, uint64_t size_bytes) {
  mo_sycl_place place = mo_sycl_place_of_memory(NULL);
  if (reaches_host(&place))
    return;
  mo_error("host memory cannot be registered on this device: it does not reach the host's memory");
  mo_context("while registering %llu bytes of host memory at %p", (unsigned long long)size_bytes,
             pointer);
  mo_sycl_context_of_device();
  mo_hint("allocate the memory by gpu.alloc host_shared, or copy it by gpu.memcpy");
}

static bool sycl_reaches(const void *pointer) {
  mo_sycl_place place = mo_sycl_place_of_memory(NULL);
  return reaches_host(&place) || holds(&place, pointer);
}

static void sycl_unregister_host(void *pointer) { (void)pointer; }
static void *sycl_device_pointer(void *registered) { return registered; }

const mo_backend mo_sycl = {
    .name = "sycl",
    .count_devices = mo_sycl_count_devices,
    .count_gpus = mo_sycl_count_gpus,
    .explain_no_device = mo_sycl_explain_no_device,
    .set_device = mo_sycl_set_device,
    .find_device = mo_sycl_find_device,
    .create_stream = mo_sycl_create_stream,
    .destroy_stream = mo_sycl_destroy_stream,
    .synchronize_stream = mo_sycl_synchronize,
    .wait_event = mo_sycl_wait_event,
    .create_event = mo_sycl_create_event,
    .destroy_event = mo_sycl_destroy_event,
    .synchronize_event = mo_sycl_synchronize,
    .record_event = mo_sycl_record_event,
    .allocate = sycl_allocate,
    .release = sycl_release,
    .copy = sycl_copy,
    .fill = sycl_fill,
    .register_host = sycl_register_host,
    .unregister_host = sycl_unregister_host,
    .device_pointer = sycl_device_pointer,
    .reaches = sycl_reaches,
    .launch = mo_sycl_launch,
};
