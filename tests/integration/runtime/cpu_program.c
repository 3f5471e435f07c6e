/* Uses the contract as compiled programs do; argv[1] chooses the part. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"

KERNEL(count)
KERNEL(describe)
KERNEL(nested)
KERNEL(slow)
KERNEL(failing)
#ifdef WITH_ABSENT_KERNEL
KERNEL(absent)
#endif

static void *stream;

static void check_memory(void) {
  char *bytes = mgpuMemAlloc(1000, stream, false);
  uint16_t *halves = mgpuMemAlloc(3 * 8191 * 2, stream, false);
  uint32_t *words = mgpuMemAlloc(8191 * 4, stream, true);
  CHECK((uintptr_t)bytes % 64 == 0 && (uintptr_t)halves % 64 == 0 && (uintptr_t)words % 64 == 0);
  CHECK(mgpuMemAlloc(0, stream, false) == NULL);
  mgpuMemset16(halves, 0xBEEF, 3 * 8191, stream);
  mgpuMemset16(halves + 1, 0x1234, 1, stream);
  mgpuMemset16(halves, 0, 0, stream);
  for (int i = 0; i < 3 * 8191; ++i)
    CHECK(halves[i] == (i == 1 ? 0x1234 : 0xBEEF));
  mgpuMemset32(words, 0x3F800001, 8191, stream);
  for (int i = 0; i < 8191; ++i)
    CHECK(words[i] == 0x3F800001);
  memset(bytes, 7, 1000);
  mgpuMemcpy(words, bytes, 1000, stream);
  CHECK(words[249] == 0x07070707 && words[250] == 0x3F800001);
  mgpuMemFree(bytes, stream);
  mgpuMemFree(halves, stream);
  mgpuMemFree(words, stream);
  mgpuMemFree(NULL, stream);
}

static void check_events(void) {
  void *other = mgpuStreamCreate(), *event = mgpuEventCreate();
  mgpuEventRecord(event, stream);
  mgpuStreamWaitEvent(other, event);
  mgpuEventSynchronize(event);
  mgpuEventDestroy(event);
  mgpuStreamWaitEvent(other, stream);
  mgpuEventSynchronize(other);
  mgpuEventDestroy(other);
}

static void check_empty_grids(void) {
  int visits = 0, *pointer = &visits;
  void *params[] = {&pointer};
  mgpuLaunchKernel((void *)stub_count, 0, 1, 1, 1, 1, 1, 0, stream, params, NULL, 1);
  mgpuLaunchKernel((void *)stub_count, 1, 1, 0, 0, 1, 1, 0, stream, params, NULL, 1);
  CHECK(visits == 0);
}

static void check_shapes(void) {
  uint32_t shape[8], *pointer = shape, *wanted = (uint32_t[]){2, 3, 4, 8, 16, 2, 77, 1};
  void *params[] = {&pointer};
  mgpuLaunchKernel((void *)stub_describe, 2, 3, 4, 8, 16, 2, 77, stream, params, NULL, 1);
  CHECK(!memcmp(shape, wanted, sizeof shape));
}

enum { BLOCKS = 5000 };

static void *check_visits(void *unused) {
  int *visits = mgpuMemAlloc(BLOCKS * sizeof(int), stream, false);
  void *params[] = {&visits};
  for (int round = 0; round < 20; ++round) {
    mgpuMemset32(visits, 0, BLOCKS, stream);
    LAUNCH(count, BLOCKS, 32, params);
    for (int i = 0; i < BLOCKS; ++i)
      CHECK(visits[i] == 1);
  }
  mgpuMemset32(visits, 0, BLOCKS, stream);
  LAUNCH(slow, 60, 1, params);
  for (int i = 0; i < BLOCKS; ++i)
    CHECK(visits[i] == (i < 60));
  mgpuMemset32(visits, 0, BLOCKS, stream);
  LAUNCH(nested, 50, 32, params);
  for (int i = 0; i < BLOCKS; ++i)
    CHECK(visits[i] == (i < 50 ? 50 : 0));
  mgpuMemFree(visits, stream);
  return unused;
}

static void check_threads(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i)
    CHECK(!pthread_create(&threads[i], NULL, check_visits, NULL));
  for (int i = 0; i < 4; ++i)
    pthread_join(threads[i], NULL);
}

static void check_fork(void) {
  check_visits(NULL);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    check_visits(NULL);
    exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void check_registration(void) {
  float data[24];
  struct {
    float *allocated, *aligned;
    int64_t offset, sizes[2], strides[2];
  } memref = {data, data, 3, {4, 2}, {5, -3}};
  mgpuMemHostRegisterMemRef(2, &memref, 4);
  mgpuMemHostUnregisterMemRef(2, &memref, 4);
}

static void check_all(void) {
  check_memory();
  check_events();
  check_shapes();
  check_empty_grids();
  check_visits(NULL);
  check_threads();
  check_fork();
  check_registration();
  mgpuSetDefaultDevice(0);
  mlir_offload_set_device("host");
  check_shapes();
  char callers_stream;
  mlir_offload_set_stream(&callers_stream);
  CHECK(mgpuStreamCreate() == &callers_stream && mlir_offload_get_stream() == &callers_stream);
  mlir_offload_set_stream(NULL);
  mgpuStreamSynchronize(stream);
  mgpuStreamDestroy(stream);
}

static void fail_by(void *argument) {
  const char *part = argument;
  int *visits = NULL;
  void *params[] = {&visits};
  if (!strcmp(part, "negative-grid"))
    LAUNCH(count, -1, 1, params);
  if (!strcmp(part, "empty-block"))
    LAUNCH(count, 1, 0, params);
  if (!strcmp(part, "large-block"))
    mgpuLaunchKernel((void *)stub_count, 1, 1, 1, 32, 32, 2, 0, stream, params, NULL, 1);
  if (!strcmp(part, "cluster"))
    mgpuLaunchClusterKernel((void *)stub_count, 2, 1, 1, 3, 1, 1, 8, 1, 1, 0, stream, params, NULL);
  if (!strcmp(part, "cooperative"))
    mgpuLaunchKernelCooperative((void *)stub_count, 4, 1, 1, 0, 0, 0, 8, 1, 1, 0, stream, params,
                                NULL);
  if (!strcmp(part, "kernel"))
    LAUNCH(failing, 1, 1, params);
  if (!strcmp(part, "stub"))
    stub_count();
  if (!strcmp(part, "device-number"))
    mgpuSetDefaultDevice(99);
  if (!strcmp(part, "device-name"))
    mlir_offload_set_device("cuda:");
  if (!strcmp(part, "memory"))
    mgpuMemAlloc(UINT64_C(1) << 62, stream, false);
#ifdef WITH_ABSENT_KERNEL
  if (!strcmp(part, "absent"))
    LAUNCH(absent, 1, 1, params);
#endif
}

/* Fails by each of the parts and goes on; the runtime works as before after each of them. */
static void handle(int count, char **parts) {
  char text[1000], little[8];
  int visits[3] = {0}, *pointer = visits;
  void *params[] = {&pointer};
  for (int i = 0; i < count; ++i) {
    mlir_offload_set_device("host");
    CHECK(mlir_offload_try(fail_by, parts[i], little, sizeof little) == MLIR_OFFLOAD_EXIT_STATUS);
    CHECK(!strcmp(little, "mlir-of"));
    CHECK(mlir_offload_try(fail_by, parts[i], text, sizeof text) == MLIR_OFFLOAD_EXIT_STATUS);
    printf("%s", text);
    CHECK(mlir_offload_try(fail_by, "nothing", text, sizeof text) == 0 && !*text);
    LAUNCH(count, 3, 1, params);
    CHECK(visits[0] == i + 1 && visits[2] == i + 1);
  }
}

/* Prints the files of the images that this process has loaded. */
static void print_images(void) {
  char line[4096];
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "/tmp/tmpfile_") && strstr(line, " r-xp "))
      printf("%s", strstr(line, "/tmp/tmpfile_"));
  fclose(maps);
}

static void try_again(void *part) {
  char text[1000];
  CHECK(mlir_offload_try(fail_by, part, text, sizeof text) == MLIR_OFFLOAD_EXIT_STATUS);
  fail_by(part);
  CHECK(false);
}

int main(int count, char **arguments) {
  char text[1000];
  printf("started\n");
  stream = mgpuStreamCreate();
  if (count > 2 && !strcmp(arguments[1], "handle"))
    handle(count - 2, arguments + 2);
  else if (count > 2 && !strcmp(arguments[1], "twice"))
    CHECK(mlir_offload_try(try_again, arguments[2], text, sizeof text) == MLIR_OFFLOAD_EXIT_STATUS);
  else if (count > 1 && !strcmp(arguments[1], "images")) {
    check_visits(NULL);
    print_images();
  } else if (count > 1)
    fail_by(arguments[1]);
  else
    check_all();
  printf("ended\n");
  return 0;
}
