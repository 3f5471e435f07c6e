/* One part of the contract per run, on an OpenCL device that may be a recording one. */
#include "contract.h"

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

static void *stream;

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

int main(int count, char **arguments) {
  const char *part = count > 1 ? arguments[1] : "";
  void *unused = NULL;
  stream = mgpuStreamCreate();
  if (!strcmp(part, "all")) {
    add_arrays();
    use_local_memory(256);
    pass_types();
    use_three_dimensions();
    fill();
    share_with_the_host();
    follow_a_pointer();
    wait_across_streams();
  }
  if (!strcmp(part, "saxpy"))
    add_arrays();
  if (!strcmp(part, "absent"))
    START(absent, 1, 1, 0, &unused);
  if (!strcmp(part, "large-block"))
    START(shape, 1, 1 << 20, 0, &unused);
  if (!strcmp(part, "wrong-block"))
    START(eight, 1, 16, 0, &unused);
  if (!strcmp(part, "shared"))
    START(turn, 1, 1, 1 << 30, &unused);
  mgpuStreamDestroy(stream);
  printf("ended\n");
  return 0;
}
