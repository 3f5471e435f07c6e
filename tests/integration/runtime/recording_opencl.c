/* A libOpenCL that writes down what it is asked for and does it on the host, as far as that needs no
 * compiler: devices, memory, copies, and launches with the bytes of their arguments, of which only
 * saxpy does something. OPENCL_RECORD_DEVICES lists the types of the devices, as in "GPU,CPU";
 * OPENCL_RECORD_FAIL names a call and the status that it returns, as in "clFinish=-5", and
 * OPENCL_RECORD_LACK what the devices do not have: "usm", "spirv" or "system".
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sycl_api.h"

enum { MOST = 256, MOST_ARGUMENTS = 8 };

struct _cl_platform_id {
  int unused;
};
struct _cl_device_id {
  uint64_t type;
  int number;
};
struct _cl_context {
  int number;
};
struct _cl_command_queue {
  cl_context context;
  cl_device_id device;
  uint64_t properties;
  int number;
};
struct _cl_program {
  cl_context context;
};
struct _cl_kernel {
  char name[32];
  struct {
    size_t size;
    unsigned char bytes[16];
  } arguments[MOST_ARGUMENTS];
  unsigned count;
};
struct _cl_event {
  cl_context context;
  int number, references;
};

static struct _cl_platform_id the_platform;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int status_of(const char *call) {
  const char *plan = getenv("OPENCL_RECORD_FAIL");
  size_t length = strlen(call);
  return plan && !strncmp(plan, call, length) && plan[length] == '=' ? atoi(plan + length + 1) : 0;
}

static int is_lacking(const char *what) {
  const char *lack = getenv("OPENCL_RECORD_LACK");
  return lack && !strcmp(lack, what);
}

#define RECORD(call, ...)          \
  do {                             \
    pthread_mutex_lock(&lock);     \
    printf(#call " " __VA_ARGS__); \
    printf("\n");                  \
    pthread_mutex_unlock(&lock);   \
    return status_of(#call);       \
  } while (0)

static int answer(const void *value, size_t length, size_t size, void *target, size_t *needed) {
  if (needed)
    *needed = length;
  if (target && size < length)
    return -30;
  if (target)
    memcpy(target, value, length);
  return 0;
}

/* In the order in which they are made, each kind by itself, so that a trace can name them. */
static int next_number(int *counter) { return __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED); }

int clGetPlatformIDs(unsigned room, cl_platform_id *platforms, unsigned *count) {
  if (room)
    platforms[0] = &the_platform;
  return *count = 1, status_of("clGetPlatformIDs");
}

int clGetDeviceIDs(cl_platform_id platform, uint64_t type, unsigned room, cl_device_id *devices,
                   unsigned *count) {
  static struct _cl_device_id all[8];
  const char *plan = getenv("OPENCL_RECORD_DEVICES");
  const char *word = type == CL_DEVICE_TYPE_GPU ? "GPU" : type == CL_DEVICE_TYPE_CPU ? "CPU" : "ACC";
  (void)platform;
  *count = 0;
  plan = plan ? plan : "CPU,GPU,GPU";
  for (int i = 0; plan; ++i) {
    if (!strncmp(plan, word, 3) && *count < room) {
      all[i] = (struct _cl_device_id){type, i};
      devices[(*count)++] = &all[i];
    }
    plan = strchr(plan, ',');
    plan += plan != NULL;
  }
  return *count ? 0 : -1;
}

int clGetDeviceInfo(cl_device_id device, unsigned what, size_t size, void *target,
                    size_t *needed) {
  static const size_t items[] = {1024, 512, 64};
  cl_platform_id platform = &the_platform;
  uint64_t number = 65536;
  char text[64];
  switch (what) {
  case CL_DEVICE_EXTENSIONS:
    return snprintf(text, sizeof text, "cl_khr_fp64 %s",
                    is_lacking("usm") ? "" : "cl_intel_unified_shared_memory"),
           answer(text, strlen(text) + 1, size, target, needed);
  case CL_DEVICE_IL_VERSION:
    return snprintf(text, sizeof text, "%s", is_lacking("spirv") ? "" : "SPIR-V_1.0 SPIR-V_1.4"),
           answer(text, strlen(text) + 1, size, target, needed);
  case CL_DEVICE_NAME:
  case CL_DRIVER_VERSION:
    return snprintf(text, sizeof text, what == CL_DEVICE_NAME ? "device %d" : "9.%d",
                    device->number),
           answer(text, strlen(text) + 1, size, target, needed);
  case CL_DEVICE_PLATFORM:
    return answer(&platform, sizeof platform, size, target, needed);
  case CL_DEVICE_MAX_WORK_ITEM_SIZES:
    return answer(items, sizeof items, size, target, needed);
  case CL_DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES:
    number = is_lacking("system") ? 0 : 15;
  }
  return answer(&number, sizeof number, size, target, needed);
}

cl_context clCreateContext(const intptr_t *properties, unsigned count, const cl_device_id *devices,
                           void *notify, void *argument, int *status) {
  static int counter;
  cl_context made = malloc(sizeof *made);
  (void)properties, (void)devices, (void)notify, (void)argument;
  made->number = next_number(&counter);
  printf("clCreateContext %d for %u devices\n", made->number, count);
  *status = status_of("clCreateContext");
  return made;
}

cl_command_queue clCreateCommandQueueWithProperties(cl_context context, cl_device_id device,
                                                    const uint64_t *properties, int *status) {
  static int counter;
  cl_command_queue made = malloc(sizeof *made);
  *made = (struct _cl_command_queue){context, device, properties ? properties[1] : 0,
                                     next_number(&counter)};
  pthread_mutex_lock(&lock);
  printf("clCreateCommandQueueWithProperties %d in context %d on device %d\n", made->number,
         context->number, device->number);
  pthread_mutex_unlock(&lock);
  *status = status_of("clCreateCommandQueueWithProperties");
  return made;
}

int clGetCommandQueueInfo(cl_command_queue queue, unsigned what, size_t size, void *target,
                          size_t *needed) {
  if (what == CL_QUEUE_CONTEXT)
    return answer(&queue->context, sizeof queue->context, size, target, needed);
  if (what == CL_QUEUE_DEVICE)
    return answer(&queue->device, sizeof queue->device, size, target, needed);
  return answer(&queue->properties, sizeof queue->properties, size, target, needed);
}

int clFlush(cl_command_queue queue) { RECORD(clFlush, "%d", queue->number); }
int clFinish(cl_command_queue queue) { RECORD(clFinish, "%d", queue->number); }

cl_program clCreateProgramWithIL(cl_context context, const void *module, size_t size,
                                 int *status) {
  cl_program made = malloc(sizeof *made);
  (void)size;
  made->context = context;
  printf("clCreateProgramWithIL in context %d magic %08x\n", context->number,
         *(const unsigned *)module);
  *status = status_of("clCreateProgramWithIL");
  return made;
}

int clBuildProgram(cl_program program, unsigned count, const cl_device_id *devices,
                   const char *options, void *notify, void *argument) {
  (void)program, (void)count, (void)notify, (void)argument;
  RECORD(clBuildProgram, "for device %d with '%s'", devices[0]->number, options);
}

int clGetProgramBuildInfo(cl_program program, cl_device_id device, unsigned what, size_t size,
                          void *target, size_t *needed) {
  static const char log[] = "first fault\n\nsecond fault\n";
  (void)program, (void)device, (void)what;
  return answer(log, sizeof log, size, target, needed);
}

cl_kernel clCreateKernel(cl_program program, const char *name, int *status) {
  cl_kernel made = calloc(1, sizeof *made);
  snprintf(made->name, sizeof made->name, "%s", name);
  printf("clCreateKernel %s in context %d\n", name, program->context->number);
  *status = status_of("clCreateKernel");
  return made;
}

static void keep_argument(cl_kernel kernel, unsigned index, size_t size, const void *value) {
  size_t length = size < 16 ? size : 16;
  kernel->arguments[index].size = size;
  memset(kernel->arguments[index].bytes, 0, 16);
  if (value)
    memcpy(kernel->arguments[index].bytes, value, length);
  kernel->count = index + 1;
}

int clSetKernelArg(cl_kernel kernel, unsigned index, size_t size, const void *value) {
  keep_argument(kernel, index, size, value);
  return status_of("clSetKernelArg");
}

int clSetKernelExecInfo(cl_kernel kernel, unsigned what, size_t size, const void *value) {
  (void)kernel, (void)size, (void)value;
  return what == CL_KERNEL_INDIRECT_HOST_ACCESS ? -59 : status_of("clSetKernelExecInfo");
}

int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device, unsigned what, size_t size,
                             void *target, size_t *needed) {
  const size_t sizes[] = {8, 1, 1}, most = 256;
  (void)kernel, (void)device;
  return answer(what == CL_KERNEL_WORK_GROUP_SIZE ? &most : sizes,
                what == CL_KERNEL_COMPILE_WORK_GROUP_SIZE ? sizeof sizes : sizeof most, size, target,
                needed);
}

int clGetKernelSubGroupInfo(cl_kernel kernel, cl_device_id device, unsigned what, size_t input_size,
                            const void *input, size_t size, void *target, size_t *needed) {
  const size_t none = 0;
  (void)kernel, (void)device, (void)what, (void)input_size, (void)input;
  return answer(&none, sizeof none, size, target, needed);
}

static void run_saxpy(cl_kernel kernel) {
  float a, *x, *y;
  unsigned count;
  memcpy(&a, kernel->arguments[0].bytes, sizeof a);
  memcpy(&x, kernel->arguments[1].bytes, sizeof x);
  memcpy(&y, kernel->arguments[2].bytes, sizeof y);
  memcpy(&count, kernel->arguments[3].bytes, sizeof count);
  for (unsigned i = 0; i < count; ++i)
    y[i] += a * x[i];
}

int clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, unsigned dimensions,
                           const size_t *offset, const size_t *global, const size_t *local,
                           unsigned wait_count, const cl_event *waits, cl_event *event) {
  (void)dimensions, (void)offset, (void)wait_count, (void)waits, (void)event;
  pthread_mutex_lock(&lock);
  printf("clEnqueueNDRangeKernel %s on %d global %zu %zu %zu local %zu %zu %zu with", kernel->name,
         queue->number, global[0], global[1], global[2], local[0], local[1], local[2]);
  for (unsigned i = 0; i < kernel->count; ++i) {
    printf(kernel->arguments[i].size == 8 ? " pointer" : " %zu:", kernel->arguments[i].size);
    for (size_t j = 0; kernel->arguments[i].size != 8 && j < kernel->arguments[i].size && j < 16; ++j)
      printf("%02x", kernel->arguments[i].bytes[j]);
  }
  printf("\n");
  pthread_mutex_unlock(&lock);
  if (!strcmp(kernel->name, "saxpy"))
    run_saxpy(kernel);
  return status_of("clEnqueueNDRangeKernel");
}

int clEnqueueMarkerWithWaitList(cl_command_queue queue, unsigned count, const cl_event *waits,
                                cl_event *event) {
  static int counter;
  (void)count, (void)waits;
  *event = malloc(sizeof **event);
  **event = (struct _cl_event){queue->context, next_number(&counter), 1};
  RECORD(clEnqueueMarkerWithWaitList, "%d on %d", (*event)->number, queue->number);
}

int clEnqueueBarrierWithWaitList(cl_command_queue queue, unsigned count, const cl_event *waits,
                                 cl_event *event) {
  (void)count, (void)event;
  RECORD(clEnqueueBarrierWithWaitList, "on %d for %d", queue->number, waits[0]->number);
}

int clWaitForEvents(unsigned count, const cl_event *events) {
  (void)count;
  RECORD(clWaitForEvents, "%d", events[0]->number);
}

int clGetEventInfo(cl_event event, unsigned what, size_t size, void *target, size_t *needed) {
  const int is_pending = status_of("pending");
  if (what == CL_EVENT_CONTEXT)
    return answer(&event->context, sizeof event->context, size, target, needed);
  return answer(&is_pending, sizeof is_pending, size, target, needed);
}

int clRetainEvent(cl_event event) {
  return __atomic_add_fetch(&event->references, 1, __ATOMIC_ACQ_REL), 0;
}

/* Freeing is recorded: it tells which events the runtime used again. */
int clReleaseEvent(cl_event event) {
  if (__atomic_sub_fetch(&event->references, 1, __ATOMIC_ACQ_REL))
    return 0;
  free(event);
  RECORD(clReleaseEvent, "freed one");
}

/* Memory belongs to a context: the list says which. */
static struct {
  char *begin;
  size_t size;
  cl_context context;
} memory[MOST];

static void *allocate(cl_context context, size_t size) {
  char *made = malloc(size);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST; ++i)
    if (!memory[i].begin) {
      memory[i].begin = made, memory[i].size = size, memory[i].context = context;
      break;
    }
  pthread_mutex_unlock(&lock);
  return made;
}

static int find_memory(cl_context context, const void *pointer) {
  for (int i = 0; i < MOST; ++i)
    if (memory[i].begin && memory[i].context == context && (const char *)pointer >= memory[i].begin &&
        (const char *)pointer < memory[i].begin + memory[i].size)
      return i;
  return -1;
}

static void *device_mem_alloc(cl_context context, cl_device_id device, const uint64_t *properties,
                              size_t size, unsigned alignment, int *status) {
  (void)properties, (void)alignment;
  *status = status_of("clDeviceMemAllocINTEL");
  pthread_mutex_lock(&lock);
  printf("clDeviceMemAllocINTEL %zu in context %d on device %d\n", size, context->number,
         device->number);
  pthread_mutex_unlock(&lock);
  return allocate(context, size);
}

static void *shared_mem_alloc(cl_context context, cl_device_id device, const uint64_t *properties,
                              size_t size, unsigned alignment, int *status) {
  (void)properties, (void)alignment, (void)device;
  *status = status_of("clSharedMemAllocINTEL");
  printf("clSharedMemAllocINTEL %zu in context %d\n", size, context->number);
  return allocate(context, size);
}

static int mem_blocking_free(cl_context context, void *pointer) {
  pthread_mutex_lock(&lock);
  int found = find_memory(context, pointer);
  if (found >= 0) {
    free(memory[found].begin);
    memory[found].begin = NULL;
  }
  pthread_mutex_unlock(&lock);
  if (found < 0)
    return -30;
  RECORD(clMemBlockingFreeINTEL, "in context %d", context->number);
}

static int get_mem_alloc_info(cl_context context, const void *pointer, unsigned what, size_t size,
                              void *target, size_t *needed) {
  (void)what;
  pthread_mutex_lock(&lock);
  unsigned type = find_memory(context, pointer) < 0 ? CL_MEM_TYPE_UNKNOWN : 0x4198;
  pthread_mutex_unlock(&lock);
  return answer(&type, sizeof type, size, target, needed);
}

static int set_kernel_arg_mem_pointer(cl_kernel kernel, unsigned index, const void *pointer) {
  keep_argument(kernel, index, sizeof pointer, &pointer);
  return status_of("clSetKernelArgMemPointerINTEL");
}

static int enqueue_memcpy(cl_command_queue queue, unsigned is_blocking, void *target,
                          const void *source, size_t size, unsigned count, const cl_event *waits,
                          cl_event *event) {
  (void)count, (void)waits, (void)event;
  memcpy(target, source, size);
  RECORD(clEnqueueMemcpyINTEL, "%zu bytes on %d%s", size, queue->number,
         is_blocking ? " blocking" : "");
}

static int enqueue_mem_fill(cl_command_queue queue, void *target, const void *pattern,
                            size_t pattern_bytes, size_t size, unsigned count,
                            const cl_event *waits, cl_event *event) {
  (void)count, (void)waits, (void)event;
  for (size_t i = 0; i < size; i += pattern_bytes)
    memcpy((char *)target + i, pattern, pattern_bytes);
  RECORD(clEnqueueMemFillINTEL, "%zu bytes of %zu-byte values on %d", size, pattern_bytes,
         queue->number);
}

void *clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
  static const struct {
    const char *name;
    void *function;
  } functions[] = {{"clDeviceMemAllocINTEL", (void *)device_mem_alloc},
                   {"clSharedMemAllocINTEL", (void *)shared_mem_alloc},
                   {"clMemBlockingFreeINTEL", (void *)mem_blocking_free},
                   {"clGetMemAllocInfoINTEL", (void *)get_mem_alloc_info},
                   {"clSetKernelArgMemPointerINTEL", (void *)set_kernel_arg_mem_pointer},
                   {"clEnqueueMemcpyINTEL", (void *)enqueue_memcpy},
                   {"clEnqueueMemFillINTEL", (void *)enqueue_mem_fill}};
  (void)platform;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i)
    if (!strcmp(functions[i].name, name))
      return functions[i].function;
  return NULL;
}
