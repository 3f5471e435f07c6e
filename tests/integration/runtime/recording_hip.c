/* A libamdhip64 that writes down what it is asked for and does it on the host, as far as that needs no
 * GPU: registration, devices, memory, streams, and launches with the bytes of their arguments. HIP_RECORD_FAIL
 * names a call and the status that it returns, as in "hipMalloc=2"; HIP_RECORD_DEVICES the number of GPUs.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dim3 {
  unsigned x, y, z;
} dim3;

enum { MOST = 64 };
static struct {
  const void *handle;
  const char *name;
} kernels[MOST];
static int kernel_count, stream_count, event_count;
static _Alignas(256) char memory[1 << 16];
static size_t used;
static struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} pushed;

static int status_of(const char *call) {
  const char *plan = getenv("HIP_RECORD_FAIL");
  size_t length = strlen(call);
  return plan && !strncmp(plan, call, length) && plan[length] == '=' ? atoi(plan + length + 1) : 0;
}

#define RECORD(call, ...)                \
  do {                                   \
    printf(#call " " __VA_ARGS__);       \
    printf("\n");                        \
    fflush(stdout);                      \
    return status_of(#call);             \
  } while (0)

typedef struct fat_binary {
  uint32_t magic, version;
  const char *bundle;
} fat_binary;

void **__hipRegisterFatBinary(const fat_binary *binary) {
  printf("__hipRegisterFatBinary %08x version %u %.24s\n", binary->magic, binary->version, binary->bundle);
  return (void **)binary;
}
void __hipUnregisterFatBinary(void **module) { (void)module; }
void __hipRegisterFunction(void **module, const void *handle, char *host_name, const char *name) {
  (void)module, (void)host_name;
  printf("__hipRegisterFunction %s\n", name);
  kernels[kernel_count].handle = handle;
  kernels[kernel_count++].name = name;
}
void __hipRegisterVar(void) {}
void __hipRegisterManagedVar(void) {}
void __hipRegisterSurface(void) {}
void __hipRegisterTexture(void) {}

const char *hipGetErrorName(int status) {
  return status == 100 ? "hipErrorNoDevice" : status == 2 ? "hipErrorOutOfMemory" : "hipErrorOther";
}
const char *hipGetErrorString(int status) { return status == 100 ? "no ROCm-capable device is detected" : "text"; }
int hipGetLastError(void) { return 0; }
int hipRuntimeGetVersion(int *version) { return *version = 50200000, 0; }
int hipGetDeviceCount(int *count) {
  const char *text = getenv("HIP_RECORD_DEVICES");
  *count = text ? atoi(text) : 2;
  return *count ? 0 : 100;
}
static int device;
int hipGetDevice(int *current) { return *current = device, 0; }
int hipSetDevice(int index) { RECORD(hipSetDevice, "%d", device = index); }
int hipGetDeviceProperties(char *properties, int index) {
  (void)index;
  strcpy(properties + 396, "gfx908:sramecc+:xnack-");
  return 0;
}
int hipStreamCreateWithFlags(void **stream, unsigned flags) {
  *stream = (void *)(uintptr_t)(0x100 + ++stream_count);
  RECORD(hipStreamCreateWithFlags, "%p flags %u", *stream, flags);
}
int hipStreamSynchronize(void *stream) { RECORD(hipStreamSynchronize, "%p", stream); }
int hipStreamQuery(void *stream) { return (void)stream, 0; }
int hipStreamWaitEvent(void *stream, void *event, unsigned flags) {
  RECORD(hipStreamWaitEvent, "%p for %p flags %u", stream, event, flags);
}
int hipEventCreateWithFlags(void **event, unsigned flags) {
  *event = (void *)(uintptr_t)(0x200 + ++event_count);
  RECORD(hipEventCreateWithFlags, "%p flags %u", *event, flags);
}
int hipEventRecord(void *event, void *stream) { RECORD(hipEventRecord, "%p on %p", event, stream); }
int hipEventSynchronize(void *event) { RECORD(hipEventSynchronize, "%p", event); }
int hipEventQuery(void *event) { return (void)event, 0; }
static int allocate(void **pointer, size_t size) {
  *pointer = memory + used;
  used += (size + 255) / 256 * 256;
  return 0;
}
int hipMalloc(void **pointer, size_t size) {
  allocate(pointer, size);
  RECORD(hipMalloc, "%zu", size);
}
int hipMallocManaged(void **pointer, size_t size, unsigned flags) {
  allocate(pointer, size);
  RECORD(hipMallocManaged, "%zu flags %u", size, flags);
}
int hipFree(void *pointer) { RECORD(hipFree, "%td", (char *)pointer - memory); }
int hipMemGetInfo(size_t *available, size_t *total) { return *available = 10, *total = 20, 0; }
int hipMemcpyAsync(void *target, const void *source, size_t size, int kind, void *stream) {
  memmove(target, source, size);
  RECORD(hipMemcpyAsync, "%zu bytes kind %d on %p", size, kind, stream);
}
int hipMemsetD16Async(void *target, unsigned short value, size_t count, void *stream) {
  (void)target, (void)stream;
  RECORD(hipMemsetD16Async, "%zu of 0x%04x", count, value);
}
int hipMemsetD32Async(void *target, int value, size_t count, void *stream) {
  (void)target, (void)stream;
  RECORD(hipMemsetD32Async, "%zu of 0x%08x", count, (unsigned)value);
}
int hipHostRegister(void *pointer, size_t size, unsigned flags) {
  (void)pointer;
  RECORD(hipHostRegister, "%zu bytes flags %u", size, flags);
}
int hipHostUnregister(void *pointer) { return (void)pointer, 0; }
int hipHostGetDevicePointer(void **result, void *pointer, unsigned flags) {
  return (void)flags, *result = pointer, 0;
}
int hipPointerGetAttributes(void *attributes, const void *pointer) {
  (void)attributes, (void)pointer;
  return 1;
}
int hipFuncSetAttribute(const void *function, int attribute, int value) {
  (void)function;
  RECORD(hipFuncSetAttribute, "%d = %d", attribute, value);
}

static const char *name_of(const void *handle) {
  for (int i = 0; i < kernel_count; ++i)
    if (kernels[i].handle == handle)
      return kernels[i].name;
  return NULL;
}

/* Prints bytes of an argument; of what lies in our memory only where. */
static void print_argument(const void *argument, size_t size) {
  char *pointer;
  memcpy(&pointer, argument, size < sizeof pointer ? 0 : sizeof pointer);
  if (size == sizeof pointer && pointer >= memory && pointer < memory + sizeof memory) {
    printf(" memory+%td", pointer - memory);
    return;
  }
  printf(" ");
  for (size_t i = 0; i < size; ++i)
    printf("%02x", ((const unsigned char *)argument)[i]);
}

int hipLaunchKernel(const void *handle, dim3 grid, dim3 block, void **params, size_t shared, void *stream) {
  const char *name = name_of(handle), *sizes = getenv("HIP_RECORD_ARGUMENTS");
  if (!name)
    return 98;
  printf("hipLaunchKernel %s grid %u %u %u block %u %u %u shared %zu on %p with", name, grid.x, grid.y, grid.z,
         block.x, block.y, block.z, shared, stream);
  for (int i = 0; sizes && sizes[i]; ++i)
    print_argument(params[i], (size_t)(sizes[i] - '0'));
  printf("\n");
  return status_of("hipLaunchKernel");
}
int hipLaunchCooperativeKernel(const void *handle, dim3 grid, dim3 block, void **params, unsigned shared,
                               void *stream) {
  printf("cooperative ");
  return hipLaunchKernel(handle, grid, block, params, shared, stream);
}
int __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
  return 0;
}
int __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void **stream) {
  *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared, *stream = pushed.stream;
  return 0;
}
