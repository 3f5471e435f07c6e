/* One part of the contract per run, for a CUDA runtime that may be a recording one. */
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
  if (!strcmp(part, "forget-streams"))
    forget_streams();
  if (!strcmp(part, "forget-events"))
    forget_events();
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
