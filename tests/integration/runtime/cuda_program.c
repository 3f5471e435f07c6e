/* One part of the contract per run, for a CUDA runtime that may be a recording one. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contract.h"

KERNEL(saxpy)

static int argument = 42;
static void *stream;

static void launch(void) {
  mgpuLaunchKernel((void *)stub_saxpy, 1, 2, 3, 4, 5, 6, 0, stream, (void *[]){&argument}, NULL, 1);
}

static void launch_with_shared(int32_t size_bytes) {
  void *own[] = {&argument};
  mgpuLaunchKernel((void *)stub_saxpy, 1, 1, 1, 4, 1, 1, size_bytes, stream, own, NULL, 1);
}

static void launch_all_ways(void) {
  void *own[] = {&argument};
  launch();
  launch_with_shared(60000);
  mgpuLaunchClusterKernel((void *)stub_saxpy, 2, 1, 1, 8, 1, 1, 32, 1, 1, 5, stream, own, NULL);
  mgpuLaunchKernelCooperative((void *)stub_saxpy, 8, 1, 1, 0, 0, 0, 32, 1, 1, 0, stream, own, NULL);
  mgpuLaunchKernelCooperative((void *)stub_saxpy, 8, 1, 1, 4, 2, 1, 32, 1, 1, 0, stream, own, NULL);
  mlir_offload_launch_stub((void *)stub_saxpy, own);
}

static void launch_cooperatively(void) {
  void *own[] = {&argument};
  mgpuLaunchKernelCooperative((void *)stub_saxpy, 8, 1, 1, 0, 0, 0, 32, 1, 1, 0, stream, own, NULL);
}

/* More streams than there may be, each given up with work left. */
static void share_streams(void) {
  for (int i = 0; i < 96; ++i) {
    void *taken = mgpuStreamCreate();
    if (i >= 31)
      mgpuEventRecord(mgpuEventCreate(), taken);
    mgpuStreamDestroy(taken);
  }
}

static void use_memory(void) {
  char *memory = mgpuMemAlloc(64, stream, false), host[64];
  mgpuMemFree(mgpuMemAlloc(32, NULL, true), NULL);
  mgpuMemcpy(memory, host, 64, stream);
  mgpuMemset32(memory, 0, 16, stream);
  mgpuMemset32(memory, 0xFFFFFFFF, 16, stream);
  mgpuMemset32(memory, 0x3F800000, 16, stream);
  mgpuMemset16(memory, 0x0101, 32, stream);
  mgpuMemset16(memory, 0x0102, 32, stream);
  struct {
    char *allocated, *aligned;
    int64_t offset, sizes[2], strides[2];
  } memref = {host, host, 3, {4, 2}, {5, -3}};
  mgpuMemHostRegisterMemRef(2, &memref, 2);
  memref.sizes[1] = 0;
  mgpuMemHostRegisterMemRef(2, &memref, 2);
  mgpuMemFree(memory, stream);
}

/* Each kind of memory, with and without a stream. */
static void free_memory(void) {
  mgpuMemFree(mgpuMemAlloc(1, stream, false), stream);
  mgpuMemFree(mgpuMemAlloc(2, stream, false), NULL);
  mgpuMemFree(mgpuMemAlloc(3, NULL, false), stream);
  mgpuMemFree(mgpuMemAlloc(4, NULL, true), stream);
  mgpuMemFree(mgpuMemAlloc(5, NULL, true), NULL);
}

/* A child that ends as programs do. */
static void end_a_child(void) {
  int status;
  pid_t child = fork();
  if (!child)
    exit(0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* What `gpu.wait async [%token]` alone does again and again: no stream is ever destroyed. */
static void forget_streams(void) {
  for (int i = 0; i < 1000; ++i) {
    void *event = mgpuEventCreate();
    mgpuEventRecord(event, stream);
    stream = mgpuStreamCreate();
    mgpuStreamWaitEvent(stream, event);
    mgpuEventDestroy(event);
  }
}

static void forget_events(void) {
  for (int i = 0; i < 2000; ++i)
    mgpuEventRecord(mgpuEventCreate(), stream);
}

static void reuse_streams(void) {
  for (int i = 0; i < 100; ++i) {
    void *first = mgpuStreamCreate(), *second = mgpuStreamCreate();
    CHECK(first != second && first != stream && second != stream);
    mgpuStreamDestroy(first);
    mgpuStreamDestroy(second);
  }
}

/* A caller's stream comes in as a token: gpu-to-llvm treats it as stream and as event. */
static void use_callers_stream(void) {
  void *callers = (void *)0xCA11;
  mgpuStreamWaitEvent(stream, callers);
  mgpuEventDestroy(callers);
  mgpuEventSynchronize(callers);
  mgpuStreamDestroy(callers);
  mlir_offload_set_stream(callers);
  CHECK(mgpuStreamCreate() == callers);
  mlir_offload_set_stream(NULL);
  CHECK(mgpuStreamCreate() != callers);
}

static void choose_devices(void) {
  mgpuSetDefaultDevice(1);
  void *other = mgpuStreamCreate();
  CHECK(other != stream);
  mgpuStreamDestroy(stream);
  CHECK(mgpuStreamCreate() != stream); /* that one is of the other device */
  mlir_offload_set_device("cuda:0");
  CHECK(mgpuStreamCreate() == stream);
  mlir_offload_set_device("cuda:7");
  mgpuStreamCreate();
}

#ifdef HAVE_CUDA
/* A part of a matrix of f16 from its element 8 on, in boxes of 64 x 32; then as the driver API has it. */
static void encode_tensor_maps(int64_t rank) {
  char text[] = "0123456789abcdefmemory of element 8";
  struct {
    char *allocated, *aligned;
    int64_t offset, sizes[2], strides[2];
  } memref = {text, text, 8, {128, 256}, {512, 1}};
  const int32_t f16 = 6, swizzle_128 = 3, l2_256 = 3, zeros = 0;
  mgpuTensorMapEncodeTiledMemref(rank, &memref, f16, 0, swizzle_128, l2_256, zeros, (int64_t[]){64, 32});
  mgpuTensorMapEncodeTiled((char[128]){0}, 7, 1, "vector", (uint64_t[]){1024}, NULL, (uint32_t[]){256},
                           (uint32_t[]){1}, 0, 0, 0, 1);
}
#endif

/* A thread is in a call of the API, with the lock of the streams, while another one forks. */
static int inside[2], outside[2];
static _Thread_local bool is_delayed;

void cuda_record_call(const char *call) {
  char byte = 0;
  if (!is_delayed || strcmp(call, "cudaStreamCreateWithFlags"))
    return;
  CHECK(write(inside[1], &byte, 1) == 1);
  CHECK(read(outside[0], &byte, 1) == 1);
}

static void *make_stream_slowly(void *unused) {
  is_delayed = true;
  mgpuStreamCreate();
  return unused;
}

static void fork_in_a_call(void) {
  char byte = 0;
  pthread_t thread;
  CHECK(!pipe(inside) && !pipe(outside));
  CHECK(!pthread_create(&thread, NULL, make_stream_slowly, NULL));
  CHECK(read(inside[0], &byte, 1) == 1);
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    alarm(300); /* of a child that hangs only */
    mgpuStreamCreate();
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  printf("child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  CHECK(write(outside[1], &byte, 1) == 1);
  CHECK(!pthread_join(thread, NULL));
}

int main(int count, char **arguments) {
  const char *part = count > 1 ? arguments[1] : "";
  stream = mgpuStreamCreate();
  if (!strcmp(part, "launch"))
    launch();
  if (!strcmp(part, "all-launches"))
    launch_all_ways();
  if (!strcmp(part, "shared"))
    launch_with_shared(60000);
  if (!strcmp(part, "memory"))
    use_memory();
  if (!strcmp(part, "free"))
    free_memory();
  if (!strcmp(part, "fork-in-a-call"))
    fork_in_a_call();
  if (!strcmp(part, "child"))
    end_a_child();
  if (!strcmp(part, "forget-streams"))
    forget_streams();
  if (!strcmp(part, "forget-events"))
    forget_events();
#ifdef HAVE_CUDA
  if (!strcmp(part, "tensor-maps"))
    encode_tensor_maps(2);
  if (!strcmp(part, "tensor-map-of-rank-6"))
    encode_tensor_maps(6);
#endif
  if (!strcmp(part, "cooperative"))
    launch_cooperatively();
  if (!strcmp(part, "share"))
    share_streams();
  if (!strcmp(part, "reuse"))
    reuse_streams();
  if (!strcmp(part, "callers-stream"))
    use_callers_stream();
  if (!strcmp(part, "devices"))
    choose_devices();
  if (!strcmp(part, "synchronize"))
    mgpuStreamSynchronize(stream);
  if (!strcmp(part, "destroy"))
    mgpuStreamDestroy(stream);
  printf("ended\n");
  return 0;
}
