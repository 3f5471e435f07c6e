/* Launches. The program of a kernel is built for a device at the first launch of the kernel on it. */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "catch.h"
#include "sycl.h"

typedef struct built_program {
  const void *words;
  cl_context context;
  cl_device_id device;
  cl_program raw;
  struct built_program *next;
} built_program;

/* Each kernel has a lock, because OpenCL stores the arguments of the next launch in the kernel. */
typedef struct built_kernel {
  const void *stub;
  cl_context context;
  cl_device_id device;
  cl_kernel raw;
  mo_sycl_signature signature;
  pthread_mutex_t lock;
  struct built_kernel *next;
} built_kernel;

enum { KERNEL_BUCKETS = 64 };
static pthread_mutex_t mo_built_lock = PTHREAD_MUTEX_INITIALIZER;
static built_program *mo_built_programs;
static built_kernel *mo_built_kernels[KERNEL_BUCKETS];

/* The data for reporting a failed launch. */
typedef struct launch_request {
  const void *stub;
  const mo_shape *shape;
  mo_sycl_place place;
} launch_request;

MO_NORETURN static void stop_launch(const launch_request *request, int status, const char *call) {
  mo_sycl_report_call(status, call);
  mo_context_of_launch(request->stub, request->shape);
  mo_sycl_context_of_device();
  mo_sycl_cure(status);
}

static void *allocate_or_stop(size_t size) {
  void *made = calloc(1, size);
  if (!made) {
    mo_error("out of host memory for a kernel");
    mo_hint("free host memory");
  }
  return made;
}

static void add_build_log(cl_program program, cl_device_id device) {
  size_t size = 0;
  mo_cl.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
  char *log = calloc(1, size + 1);
  if (!log || mo_cl.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log, NULL) !=
                  CL_SUCCESS)
    return;
  char *rest = log;
  for (char *line = strtok_r(log, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    mo_context("build log: %s", line);
}

static void add_versions(const mo_sycl_module *module, cl_device_id device) {
  char il[512];
  unsigned version = module->words[1];
  mo_sycl_device_text(device, CL_DEVICE_IL_VERSION, il, sizeof il);
  mo_context("the module is SPIR-V %u.%u, the device takes: %s", version >> 16 & 0xFF,
             version >> 8 & 0xFF, il);
}

MO_NORETURN static void stop_build(const launch_request *request, const mo_sycl_module *module,
                                   cl_program program, int status, const char *call) {
  mo_sycl_report_call(status, call);
  mo_context_of_launch(request->stub, request->shape);
  if (program)
    add_build_log(program, request->place.device);
  add_versions(module, request->place.device);
  mo_sycl_context_of_device();
  mo_sycl_cure(status);
}

/* Needs the lock. */
static cl_program build_program(const launch_request *request, const mo_sycl_module *module) {
  const mo_sycl_place *place = &request->place;
  for (built_program *at = mo_built_programs; at; at = at->next)
    if (at->words == module->words && at->context == place->context &&
        at->device == place->device)
      return at->raw;
  int status;
  cl_program program = mo_cl.clCreateProgramWithIL(
      place->context, module->words, module->word_count * sizeof *module->words, &status);
  if (status != CL_SUCCESS)
    stop_build(request, module, NULL, status, "clCreateProgramWithIL");
  status = mo_cl.clBuildProgram(program, 1, &place->device, module->build_options, NULL, NULL);
  if (status != CL_SUCCESS)
    stop_build(request, module, program, status, "clBuildProgram");
  built_program *added = allocate_or_stop(sizeof *added);
  *added = (built_program){module->words, place->context, place->device, program, mo_built_programs};
  mo_built_programs = added;
  return program;
}

/* A kernel may use pointers that it loads from memory, not only its arguments. */
static void allow_indirect_access(const launch_request *request, cl_kernel kernel) {
  static const unsigned kinds[] = {CL_KERNEL_INDIRECT_HOST_ACCESS,
                                   CL_KERNEL_INDIRECT_DEVICE_ACCESS,
                                   CL_KERNEL_INDIRECT_SHARED_ACCESS};
  unsigned allowed = 1;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
    int status = mo_cl.clSetKernelExecInfo(kernel, kinds[i], sizeof allowed, &allowed);
    /* The device does not support this kind of memory. */
    if (status != CL_SUCCESS && status != CL_INVALID_OPERATION)
      stop_launch(request, status, "clSetKernelExecInfo");
  }
}

static void read_signature(const launch_request *request, const mo_sycl_module *module,
                           const char *name, mo_sycl_signature *signature) {
  const char *fault = mo_sycl_read_signature(module, name, signature);
  unsigned local_count = 0;
  for (unsigned i = 0; i < signature->count; ++i)
    local_count += signature->parameters[i].passing == PASS_LOCAL_MEMORY;
  if (!fault && local_count > 1)
    fault = "it has several parameters for dynamic shared memory";
  if (!fault)
    return;
  mo_error("the kernel %s cannot be launched: %s", name, fault);
  mo_context_of_launch(request->stub, request->shape);
  mo_hint("compile it again with mlir-offload --offload-arch=spirv64");
}

/* Needs the lock. */
static built_kernel *build_kernel(const launch_request *request) {
  const char *name;
  int status;
  mo_sycl_module module = mo_sycl_find_module(request->stub, request->shape, &name);
  built_kernel *kernel = allocate_or_stop(sizeof *kernel);
  read_signature(request, &module, name, &kernel->signature);
  cl_program program = build_program(request, &module);
  kernel->raw = mo_cl.clCreateKernel(program, name, &status);
  if (status != CL_SUCCESS)
    stop_launch(request, status, "clCreateKernel");
  allow_indirect_access(request, kernel->raw);
  kernel->stub = request->stub;
  kernel->context = request->place.context;
  kernel->device = request->place.device;
  pthread_mutex_init(&kernel->lock, NULL);
  return kernel;
}

static built_kernel *find_kernel(const launch_request *request) {
  built_kernel **bucket = &mo_built_kernels[((uintptr_t)request->stub >> 4) % KERNEL_BUCKETS];
  mo_lock(&mo_built_lock);
  built_kernel *kernel = *bucket;
  while (kernel && (kernel->stub != request->stub || kernel->context != request->place.context ||
                    kernel->device != request->place.device))
    kernel = kernel->next;
  if (!kernel) {
    kernel = build_kernel(request);
    kernel->next = *bucket;
    *bucket = kernel;
  }
  mo_unlock(&mo_built_lock);
  return kernel;
}

/* params has a pointer to the value of each argument. Workgroup memory is not an argument of the host. */
static void set_arguments(const launch_request *request, const built_kernel *kernel,
                          void **params) {
  const usm_functions *usm = &request->place.platform->usm;
  size_t shared = request->shape->dynamic_shared;
  for (unsigned i = 0; i < kernel->signature.count; ++i) {
    const mo_sycl_parameter *parameter = &kernel->signature.parameters[i];
    const char *call = "clSetKernelArg";
    int status;
    if (parameter->passing == PASS_LOCAL_MEMORY) {
      status = mo_cl.clSetKernelArg(kernel->raw, i, shared ? shared : 1, NULL);
    } else if (parameter->passing == PASS_FAILURES) {
      call = "clSetKernelArgMemPointerINTEL";
      status = usm->clSetKernelArgMemPointerINTEL(kernel->raw, i, mo_sycl_failures(&request->place));
    } else if (parameter->passing == PASS_POINTER) {
      call = "clSetKernelArgMemPointerINTEL";
      status = usm->clSetKernelArgMemPointerINTEL(kernel->raw, i, *(void **)*params++);
    } else {
      status = mo_cl.clSetKernelArg(kernel->raw, i, parameter->size_bytes, *params++);
    }
    if (status != CL_SUCCESS) {
      char text[64];
      snprintf(text, sizeof text, "%s (argument %u)", call, i);
      stop_launch(request, status, text);
    }
  }
}

/* Adds the limits of the device that the shape of the launch exceeds. */
static void add_limits(const launch_request *request, cl_kernel kernel) {
  cl_device_id device = request->place.device;
  size_t most = 0, sizes[3] = {0}, required[3] = {0};
  uint64_t used = 0, local = 0;
  mo_cl.clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most,
                                 NULL);
  mo_cl.clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                 sizeof required, required, NULL);
  mo_cl.clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof used, &used,
                                 NULL);
  mo_cl.clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL);
  mo_cl.clGetDeviceInfo(device, CL_DEVICE_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
  mo_context("limits: blocks of %zu work-items, %zu x %zu x %zu; %llu bytes of shared memory, %llu "
             "of them used by the kernel",
             most, sizes[0], sizes[1], sizes[2], (unsigned long long)local,
             (unsigned long long)used);
  if (required[0])
    mo_context("the kernel was compiled for blocks of %zu x %zu x %zu", required[0], required[1],
               required[2]);
}

MO_NORETURN static void stop_enqueue(const launch_request *request, cl_kernel kernel, int status) {
  mo_sycl_report_call(status, "clEnqueueNDRangeKernel");
  mo_context_of_launch(request->stub, request->shape);
  add_limits(request, kernel);
  mo_sycl_context_of_device();
  mo_sycl_cure(status);
}

static void refuse_form(const void *stub, const mo_shape *shape) {
  if (!shape->cluster[0] && !shape->is_cooperative)
    return;
  mo_error("%s launches are not supported by OpenCL",
           shape->is_cooperative ? "cooperative" : "cluster");
  mo_context_of_launch(stub, shape);
  mo_hint("launch the kernel without clusters and grid barriers, or run it on an NVIDIA GPU");
}

/* Kernels assume that subgroups are numbered along x, then y, then z. In OpenCL the device determines this; a CPU
 * device forms subgroups only along x. */
static void check_subgroups(const launch_request *request, cl_kernel kernel,
                            const size_t local[3]) {
  cl_device_id device = request->place.device;
  size_t size = 0, count = 0, threads = local[0] * local[1] * local[2];
  if (threads == local[0])
    return;
  mo_cl.clGetKernelSubGroupInfo(kernel, device, CL_KERNEL_COMPILE_SUB_GROUP_SIZE_INTEL, 0, NULL,
                                sizeof size, &size, NULL);
  if (!size)
    return;
  int status = mo_cl.clGetKernelSubGroupInfo(kernel, device, CL_KERNEL_SUB_GROUP_COUNT_FOR_NDRANGE,
                                             3 * sizeof *local, local, sizeof count, &count, NULL);
  if (status != CL_SUCCESS)
    stop_launch(request, status, "clGetKernelSubGroupInfo");
  size_t wanted = (threads + size - 1) / size;
  if (count == wanted)
    return;
  mo_error("the device makes %zu subgroups of a block that has %zu", count, wanted);
  mo_context_of_launch(request->stub, request->shape);
  mo_sycl_context_of_device();
  mo_hint("launch blocks of one dimension, or with a multiple of %zu threads along x", size);
}

void mo_sycl_launch(const void *stub, const mo_shape *shape, void *stream, void **params) {
  size_t global[3], local[3];
  refuse_form(stub, shape);
  for (int i = 0; i < 3; ++i) {
    local[i] = shape->block[i];
    global[i] = (size_t)shape->grid[i] * shape->block[i];
  }
  launch_request request = {stub, shape, mo_sycl_place_of(stream)};
  built_kernel *kernel = find_kernel(&request);
  mo_lock(&kernel->lock);
  check_subgroups(&request, kernel->raw, local);
  set_arguments(&request, kernel, params);
  int status = mo_cl.clEnqueueNDRangeKernel(request.place.queue, kernel->raw, 3, NULL, global,
                                            local, 0, NULL, NULL);
  if (status != CL_SUCCESS)
    stop_enqueue(&request, kernel->raw, status);
  mo_unlock(&kernel->lock);
  mo_sycl_start(request.place.queue);
}
