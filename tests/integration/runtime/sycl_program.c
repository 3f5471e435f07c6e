/* One part of the contract per run, on an OpenCL device that may be a recording one. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <pthread.h>

#include "contract.h"
#include "sycl_api.h"

#define SYCL_KERNEL(kernel)                                                                   \
  static void stub_##kernel(void) { mlir_offload_launch_stub((void *)stub_##kernel, NULL); }  \
  ENTRY(sycl_, kernel, 8, "llvm_offload_entries")

SYCL_KERNEL(saxpy)
SYCL_KERNEL(turn)
SYCL_KERNEL(types)
SYCL_KERNEL(shape)
SYCL_KERNEL(eight)
SYCL_KERNEL(follow)
SYCL_KERNEL(absent)

enum { COUNT = 1000, BYTES = COUNT * 4 };

/* There where the program is for the CPU itself too: that is a device once something is registered. */
__attribute__((weak)) void __tgt_register_lib(const void *);

static void *stream;

typedef struct memref_1d {
  char *allocated, *aligned;
  int64_t offset, size, stride;
} memref_1d;
memref_1d mgpuMemGetDeviceMemRef1dInt32(char *, char *, int64_t, int64_t, int64_t);

#define START(kernel, blocks, items, shared, ...)                                              \
  mgpuLaunchKernel((void *)stub_##kernel, blocks, 1, 1, items, 1, 1, shared, stream,           \
                   (void *[]){__VA_ARGS__}, NULL, 0)

static void *device_memory(const void *content, size_t size) {
  void *memory = mgpuMemAlloc(size, stream, false);
  mgpuMemcpy(memory, (void *)content, size, stream);
  return memory;
}

static void fetch(void *target, void *memory, size_t size) {
  mgpuMemcpy(target, memory, size, stream);
  mgpuStreamSynchronize(stream);
}

static void add_arrays(void) {
  float x[COUNT], y[COUNT], a = 2;
  unsigned count = COUNT;
  for (int i = 0; i < COUNT; ++i)
    x[i] = (float)i, y[i] = 1;
  void *device_x = device_memory(x, BYTES), *device_y = device_memory(y, BYTES);
  START(saxpy, 16, 64, 0, &a, &device_x, &device_y, &count);
  fetch(y, device_y, BYTES);
  for (int i = 0; i < COUNT; ++i)
    CHECK(y[i] == 1 + 2 * (float)i);
  mgpuMemFree(device_x, stream);
  mgpuMemFree(device_y, stream);
}

static void use_local_memory(int32_t shared) {
  int out[128];
  void *memory = mgpuMemAlloc(sizeof out, stream, false);
  START(turn, 2, 64, shared, &memory);
  fetch(out, memory, sizeof out);
  for (int i = 0; i < 128; ++i)
    CHECK(out[i] == i / 64 * 64 + 63 - i % 64);
}

static void pass_types(void) {
  struct {
    unsigned char byte;
    double number;
  } f = {6, 7.5};
  _Alignas(16) int c[4] = {0, 0, -3, 0};
  int pair[2] = {1, 8};
  unsigned char a = 255;
  short b = -2;
  long d = 1L << 40;
  signed char e[2] = {0, -5};
  double h = 9.25, out[9];
  void *memory = mgpuMemAlloc(sizeof out, stream, false), *g = device_memory(pair, sizeof pair);
  START(types, 1, 1, 0, &memory, &a, &b, c, &d, e, &f, &g, &h);
  fetch(out, memory, sizeof out);
  static const double expected[] = {255, -2, -3, 1L << 40, -5, 6, 7.5, 8, 9.25};
  for (int i = 0; i < 9; ++i)
    CHECK(out[i] == expected[i]);
}

static void use_three_dimensions(void) {
  unsigned out[24 * 6];
  void *memory = mgpuMemAlloc(sizeof out, stream, false);
  mgpuLaunchKernel((void *)stub_shape, 2, 3, 4, 1, 2, 3, 0, stream, (void *[]){&memory}, NULL, 1);
  fetch(out, memory, sizeof out);
  for (unsigned i = 0; i < 24 * 6; ++i)
    CHECK(out[i] == i % 2 + 10 * (i / 2 % 6 / 2) + 100 * (i / 12 / 3));
}

static void fill(void) {
  uint16_t halves[8];
  uint32_t words[8];
  void *memory = mgpuMemAlloc(32, stream, false);
  mgpuMemset32(memory, 0x12345678, 8, stream);
  fetch(words, memory, 32);
  mgpuMemset16(memory, 0xABCD, 8, stream);
  fetch(halves, memory, 16);
  for (int i = 0; i < 8; ++i)
    CHECK(words[i] == 0x12345678 && halves[i] == 0xABCD);
  mgpuMemFree(memory, stream);
}

static void share_with_the_host(void) {
  int *shared = mgpuMemAlloc(64 * 4, NULL, true);
  void *pointer = shared;
  START(turn, 1, 64, 256, &pointer);
  mgpuStreamSynchronize(stream);
  CHECK(shared[0] == 63 && shared[63] == 0);
  mgpuMemFree(shared, NULL);
}

static void follow_a_pointer(void) {
  int *shared = mgpuMemAlloc(4, NULL, true);
  void *where = device_memory(&shared, sizeof shared);
  START(follow, 1, 1, 0, &where);
  mgpuStreamSynchronize(stream);
  CHECK(*shared == 77);
}

/* The second stream's kernel takes what the first one's has made. */
static void wait_across_streams(void) {
  float ones[COUNT], y[COUNT] = {0}, a = 1;
  unsigned count = COUNT;
  for (int i = 0; i < COUNT; ++i)
    ones[i] = 1;
  void *x = device_memory(ones, BYTES), *first = device_memory(y, BYTES);
  void *second = device_memory(y, BYTES), *other = mgpuStreamCreate(), *event = mgpuEventCreate();
  CHECK(other != stream);
  mgpuStreamWaitEvent(other, event); /* never recorded: nothing to wait for */
  for (int i = 0; i < 100; ++i) {
    START(saxpy, 16, 64, 0, &a, &x, &first, &count);
    mgpuEventRecord(event, stream);
    mgpuStreamWaitEvent(other, event);
    mgpuLaunchKernel((void *)stub_saxpy, 16, 1, 1, 64, 1, 1, 0, other,
                     (void *[]){&a, &first, &second, &count}, NULL, 4);
    mgpuEventRecord(event, other);
    mgpuStreamWaitEvent(stream, event);
  }
  mgpuEventSynchronize(event);
  mgpuEventDestroy(event);
  fetch(y, second, BYTES);
  mgpuStreamDestroy(other);
  for (int i = 0; i < COUNT; ++i)
    CHECK(y[i] == 5050);
}

/* Two chains that need nothing of each other, and what joins them. */
static void run_chains(void) {
  float x[COUNT] = {1, 2, 3}, y[COUNT] = {0}, a = 3;
  unsigned count = COUNT;
  void *streams[2] = {stream, mgpuStreamCreate()}, *events[2], *xs[2], *ys[2];
  for (int i = 0; i < 2; ++i) {
    xs[i] = mgpuMemAlloc(BYTES, streams[i], false);
    ys[i] = mgpuMemAlloc(BYTES, streams[i], false);
    mgpuMemcpy(xs[i], x, BYTES, streams[i]);
    mgpuMemset32(ys[i], 0, COUNT, streams[i]);
    mgpuLaunchKernel((void *)stub_saxpy, 16, 1, 1, 64, 1, 1, 0, streams[i],
                     (void *[]){&a, &xs[i], &ys[i], &count}, NULL, 4);
    events[i] = mgpuEventCreate();
    mgpuEventRecord(events[i], streams[i]);
  }
  void *joined = mgpuStreamCreate();
  for (int i = 0; i < 2; ++i) {
    mgpuStreamWaitEvent(joined, events[i]);
    mgpuEventDestroy(events[i]);
    mgpuStreamDestroy(streams[i]);
  }
  stream = joined;
  START(saxpy, 16, 64, 0, &a, &ys[0], &ys[1], &count);
  fetch(y, ys[1], BYTES);
  CHECK(y[0] == 12 && y[2] == 36);
}

/* A caller's queue, of a context of the caller's own. */
static void *callers_queue(const uint64_t *properties) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
  CHECK(library);
#define OPENCL(result, name, parameters) result(*name) parameters = (result(*) parameters)dlsym(library, #name);
  OPENCL(int, clGetPlatformIDs, (unsigned, cl_platform_id *, unsigned *))
  OPENCL(int, clGetDeviceIDs, (cl_platform_id, uint64_t, unsigned, cl_device_id *, unsigned *))
  OPENCL(cl_context, clCreateContext,
         (const intptr_t *, unsigned, const cl_device_id *, void *, void *, int *))
  OPENCL(cl_command_queue, clCreateCommandQueueWithProperties,
         (cl_context, cl_device_id, const uint64_t *, int *))
  cl_platform_id platform;
  cl_device_id device;
  unsigned count;
  int status;
  CHECK(!clGetPlatformIDs(1, &platform, &count));
  CHECK(!clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, &count));
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
  return clCreateCommandQueueWithProperties(context, device, properties, &status);
}

static void use_callers_stream(void) {
  void *queue = callers_queue(NULL), *own = stream, *early = mgpuMemAlloc(64, NULL, false);
  mlir_offload_set_stream(queue);
  CHECK(mgpuStreamCreate() == queue);
  stream = queue;
  add_arrays();
  mgpuMemFree(early, NULL); /* of the device's own context */
  mgpuMemFree(mgpuMemAlloc(64, NULL, false), NULL);
  mlir_offload_set_stream(NULL);
  stream = own;
  /* As a token, it is also what represents the event. */
  mgpuStreamWaitEvent(stream, queue);
  mgpuEventSynchronize(queue);
  mgpuEventDestroy(queue);
  mgpuStreamDestroy(queue);
}

static void use_unordered_stream(void) {
  static const uint64_t properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_OUT_OF_ORDER, 0};
  stream = callers_queue(properties);
  mgpuMemFree(mgpuMemAlloc(4, stream, false), stream);
}

/* Work that names no stream. */
static void name_no_stream(void) {
  int out[8], zero = 0;
  void *memory = mgpuMemAlloc(sizeof out, NULL, false);
  mgpuMemset32(memory, 5, 8, NULL);
  mgpuMemcpy(memory, &zero, sizeof zero, NULL);
  mgpuMemcpy(out, memory, sizeof out, NULL);
  mgpuStreamSynchronize(NULL);
  CHECK(out[0] == 0 && out[7] == 5);
}

static void register_host(void) {
  static int memory[16];
  mgpuMemHostRegister(memory, sizeof memory);
  CHECK(mgpuMemGetDeviceMemRef1dInt32((char *)memory, (char *)memory, 0, 16, 1).aligned ==
        (char *)memory);
}

static void forget_events(void) {
  for (int i = 0; i < 400; ++i)
    mgpuEventRecord(mgpuEventCreate(), stream);
}

/* One kernel, launched by several threads at a time, each with arguments of its own. */
static void *launch_often(void *argument) {
  float x[64], y[64] = {0}, a = 1, first = *(int *)argument;
  unsigned count = 64;
  void *own = mgpuStreamCreate(), *event = mgpuEventCreate();
  for (int i = 0; i < 64; ++i)
    x[i] = first + (float)i;
  void *device_x = mgpuMemAlloc(sizeof x, own, false), *device_y = mgpuMemAlloc(sizeof y, own, false);
  mgpuMemcpy(device_x, x, sizeof x, own);
  mgpuMemcpy(device_y, y, sizeof y, own);
  for (int i = 0; i < 50; ++i) {
    mgpuLaunchKernel((void *)stub_saxpy, 1, 1, 1, 64, 1, 1, 0, own,
                     (void *[]){&a, &device_x, &device_y, &count}, NULL, 4);
    mgpuEventRecord(event, own);
    mgpuStreamWaitEvent(own, event);
  }
  mgpuMemcpy(y, device_y, sizeof y, own);
  mgpuStreamSynchronize(own);
  mgpuEventDestroy(event);
  mgpuMemFree(device_x, own);
  mgpuMemFree(device_y, own);
  mgpuStreamDestroy(own);
  for (int i = 0; i < 64; ++i)
    CHECK(y[i] == 50 * (first + (float)i));
  return NULL;
}

static void use_threads(void) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  int numbers[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    numbers[i] = 1000 * i;
    CHECK(!pthread_create(&threads[i], NULL, launch_often, &numbers[i]));
  }
  for (int i = 0; i < THREADS; ++i)
    pthread_join(threads[i], NULL);
}

static void choose_devices(void) {
  void *first = stream;
  mgpuSetDefaultDevice(1);
  stream = mgpuStreamCreate();
  CHECK(stream != first);
  add_arrays();
  mgpuSetDefaultDevice(7);
}

static void launch_together(void) {
  mgpuLaunchKernelCooperative((void *)stub_shape, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0, stream, NULL, NULL);
}

static void launch_clusters(void) {
  mgpuLaunchClusterKernel((void *)stub_shape, 2, 1, 1, 2, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static void do_nothing(void) {}
static void synchronize(void) { mgpuStreamSynchronize(stream); }
static void call_stub(void) { stub_saxpy(); }
static void *nothing;
static void launch_absent(void) { START(absent, 1, 1, 0, &nothing); }
static void launch_large_block(void) { START(shape, 1, 1 << 20, 0, &nothing); }
static void launch_wrong_block(void) { START(eight, 1, 16, 0, &nothing); }
static void launch_much_shared(void) { START(turn, 1, 1, 1 << 30, &nothing); }
static void launch_shared(void) { use_local_memory(256); }

static void do_everything(void) {
  add_arrays();
  use_local_memory(256);
  pass_types();
  use_three_dimensions();
  fill();
  share_with_the_host();
  follow_a_pointer();
  wait_across_streams();
  run_chains();
  use_callers_stream();
  name_no_stream();
  use_threads();
}

int main(int count, char **arguments) {
  static const struct {
    const char *name;
    void (*run)(void);
  } parts[] = {{"all", do_everything},
               {"saxpy", add_arrays},
               {"fill", fill},
               {"shared", share_with_the_host},
               {"local", launch_shared},
               {"chains", run_chains},
               {"callers-stream", use_callers_stream},
               {"unordered", use_unordered_stream},
               {"no-stream", name_no_stream},
               {"register", register_host},
               {"events", forget_events},
               {"threads", use_threads},
               {"devices", choose_devices},
               {"cooperative", launch_together},
               {"cluster", launch_clusters},
               {"nothing", do_nothing},
               {"synchronize", synchronize},
               {"stub", call_stub},
               {"absent", launch_absent},
               {"large-block", launch_large_block},
               {"wrong-block", launch_wrong_block},
               {"much-shared", launch_much_shared}};
  static const char no_images[64];
  CHECK(count == 2);
  if (__tgt_register_lib)
    __tgt_register_lib(no_images);
  stream = mgpuStreamCreate();
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i)
    if (!strcmp(arguments[1], parts[i].name)) {
      parts[i].run();
      printf("ended\n");
      return 0;
    }
  printf("no part %s\n", arguments[1]);
  return 1;
}
