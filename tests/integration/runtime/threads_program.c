/* Host threads that use every part of the runtime at once: IMAGE together|in-turn|leave|fail. The image for the
 * CPU is registered here, as a program does before its main function. With "leave" the program ends while its
 * threads live. */
#include <pthread.h>
#include <unistd.h>

#include "contract.h"

KERNEL(bump)
KERNEL(meet)

enum { THREADS = 8, BLOCKS = 16, ITEMS = 8, ROUNDS = 3 };

typedef struct device_image {
  void *begin, *end;
  const void *entries_begin, *entries_end;
} device_image;
typedef struct image_descriptor {
  int32_t image_count;
  device_image *images;
  const void *entries_begin, *entries_end;
} image_descriptor;
void __tgt_register_lib(image_descriptor *);
extern const char __start_llvm_offload_entries[], __stop_llvm_offload_entries[];

void mgpuMemHostUnregister(void *);
void wait_for_turn(int number);
void end_turn(void);

/* Without a word the first device that there is. */
static const char *const devices[] = {NULL, "cuda:1", "hip", "host"};
static const char *way;

static void register_image(const char *path) {
  static device_image image;
  static image_descriptor descriptor;
  FILE *file = fopen(path, "rb");
  CHECK(file);
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  image.begin = malloc((size_t)size);
  CHECK(fread(image.begin, 1, (size_t)size, file) == (size_t)size);
  image.end = (char *)image.begin + size;
  image.entries_begin = __start_llvm_offload_entries;
  image.entries_end = __stop_llvm_offload_entries;
  descriptor = (image_descriptor){1, &image, image.entries_begin, image.entries_end};
  __tgt_register_lib(&descriptor);
  fclose(file);
}

static void launch_all(int *data, void *stream, bool is_host) {
  void *params[] = {&data};
  LAUNCH(bump, BLOCKS, ITEMS, params);
  LAUNCH(meet, BLOCKS, ITEMS, params);
  if (is_host)
    return;
  mgpuLaunchKernelCooperative((void *)stub_bump, 8, 1, 1, 0, 0, 0, 32, 1, 1, 0, stream, params, NULL);
}

static void use_device(int number, bool is_host) {
  int host[BLOCKS] = {0}, result[BLOCKS] = {0};
  for (int round = 0; round < ROUNDS; ++round) {
    void *stream = mgpuStreamCreate(), *other = mgpuStreamCreate(), *event = mgpuEventCreate();
    int *data = mgpuMemAlloc(sizeof host, stream, false);
    mgpuMemset32(data, 0, BLOCKS, stream);
    mgpuMemcpy(data, host, sizeof host, stream);
    launch_all(data, stream, is_host);
    mgpuEventRecord(event, stream);
    mgpuStreamWaitEvent(other, event);
    mgpuEventSynchronize(event);
    mgpuEventDestroy(event);
    mgpuMemcpy(result, data, sizeof result, other);
    mgpuStreamSynchronize(other);
    for (int i = 0; is_host && i < BLOCKS; ++i)
      CHECK(result[i] == 1 + ITEMS * (ITEMS - 1) / 2);
    mgpuMemHostRegister(host, sizeof host);
    mgpuMemHostUnregister(host);
    mgpuMemFree(data, stream);
    mgpuMemFree(mgpuMemAlloc(64, NULL, true), NULL);
    mgpuStreamDestroy(other);
    mgpuStreamDestroy(stream);
    if (number % 3 == 0)
      mlir_offload_set_stream((void *)(uintptr_t)(0xa000 + 16 * number));
  }
}

static void *work(void *argument) {
  int number = (int)(intptr_t)argument;
  bool leaves = !strcmp(way, "leave"), in_turn = leaves || !strcmp(way, "in-turn");
  const char *device = devices[number % 4];
  if (in_turn)
    wait_for_turn(number);
  if (!strcmp(way, "fail"))
    mlir_offload_set_device("bogus");
  if (device)
    mlir_offload_set_device(device);
  use_device(number, device && !strcmp(device, "host"));
  if (in_turn)
    end_turn();
  while (leaves)
    pause();
  return NULL;
}

int main(int count, char **arguments) {
  pthread_t threads[THREADS];
  CHECK(count == 3);
  way = arguments[2];
  register_image(arguments[1]);
  for (int i = 0; i < THREADS; ++i)
    CHECK(!pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i));
  if (!strcmp(way, "leave"))
    wait_for_turn(THREADS);
  for (int i = 0; i < THREADS && strcmp(way, "leave"); ++i)
    CHECK(!pthread_join(threads[i], NULL));
  printf("ended\n");
  return 0;
}
