/* A libcudart that writes down each call and does nothing: it shows what the runtime asks of CUDA,
 * and how it answers errors that only a machine with a GPU could give. CUDA_RECORD_FAIL names a
 * call and the status that it returns, as in "cudaMalloc=2"; with "cudaMalloc=2@3" only from the
 * third call on, with "=2!" only once.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct dim3 {
  unsigned x, y, z;
} dim3;

/* The program may look at the calls, and delay them. */
__attribute__((weak)) extern void cuda_record_call(const char *call);

static int status_of(const char *call) {
  static int calls;
  const char *plan = getenv("CUDA_RECORD_FAIL");
  size_t length = strlen(call);
  if (cuda_record_call)
    cuda_record_call(call);
  if (!plan || strncmp(plan, call, length) || plan[length] != '=')
    return 0;
  const char *from = strchr(plan, '@');
  ++calls;
  if (strchr(plan, '!') && calls > 1)
    return 0;
  return calls >= (from ? atoi(from + 1) : 1) ? atoi(plan + length + 1) : 0;
}

#define RECORD(call, ...)                \
  do {                                   \
    printf(#call " " __VA_ARGS__);       \
    printf("\n");                        \
    return status_of(#call);             \
  } while (0)

static int device;
static size_t next_handle = 0x1000;

const char *cudaGetErrorName(int status) {
  static char name[32];
  if (status == 2)
    return "cudaErrorMemoryAllocation";
  if (status == 209)
    return "cudaErrorNoKernelImageForDevice";
  if (status == 700)
    return "cudaErrorIllegalAddress";
  snprintf(name, sizeof name, "cudaError%d", status);
  return name;
}
const char *cudaGetErrorString(int status) {
  static char text[32];
  snprintf(text, sizeof text, "text of %d", status);
  return text;
}
int cudaGetLastError(void) { return 0; }
int cudaRuntimeGetVersion(int *version) { return *version = 12040, 0; }
int cudaDriverGetVersion(int *version) { return *version = 11080, 0; }
int cudaGetDeviceCount(int *count) { return *count = 2, status_of("cudaGetDeviceCount"); }
int cudaGetDevice(int *current) { return *current = device, 0; }
int cudaSetDevice(int index) { RECORD(cudaSetDevice, "%d", device = index); }
int cudaDeviceGetAttribute(int *value, int attribute, int index) {
  (void)index;
  *value = attribute == 75 ? 7 : attribute == 76 ? 5 : attribute == 88 ? 0 : 65536;
  return 0;
}
int cudaStreamCreateWithFlags(void **stream, unsigned flags) {
  *stream = (void *)(next_handle += 16);
  RECORD(cudaStreamCreateWithFlags, "%p flags %u", *stream, flags);
}
int cudaStreamSynchronize(void *stream) { RECORD(cudaStreamSynchronize, "%p", stream); }
int cudaStreamQuery(void *stream) { return (void)stream, status_of("cudaStreamQuery"); }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) {
  RECORD(cudaStreamWaitEvent, "%p for %p flags %u", stream, event, flags);
}
int cudaEventCreateWithFlags(void **event, unsigned flags) {
  *event = (void *)(next_handle += 16);
  RECORD(cudaEventCreateWithFlags, "%p flags %u", *event, flags);
}
int cudaEventRecord(void *event, void *stream) {
  RECORD(cudaEventRecord, "%p on %p", event, stream);
}
int cudaEventSynchronize(void *event) { RECORD(cudaEventSynchronize, "%p", event); }
int cudaEventQuery(void *event) { return (void)event, status_of("cudaEventQuery"); }
int cudaMalloc(void **pointer, size_t size) {
  *pointer = malloc(size);
  RECORD(cudaMalloc, "%zu", size);
}
int cudaMallocManaged(void **pointer, size_t size, unsigned flags) {
  *pointer = malloc(size);
  RECORD(cudaMallocManaged, "%zu flags %u", size, flags);
}
int cudaMallocAsync(void **pointer, size_t size, void *stream) {
  *pointer = malloc(size);
  RECORD(cudaMallocAsync, "%zu on %p", size, stream);
}
int cudaFreeAsync(void *pointer, void *stream) {
  (void)pointer;
  RECORD(cudaFreeAsync, "memory on %p", stream);
}
int cudaPointerGetAttributes(int *attributes, const void *pointer) {
  return (void)pointer, *attributes = 2, 0;
}
int cudaDeviceSynchronize(void) { RECORD(cudaDeviceSynchronize, ""); }
int cudaFree(void *pointer) { RECORD(cudaFree, "%s", pointer ? "memory" : "nothing"); }
int cudaMemGetInfo(size_t *available, size_t *total) { return *available = 10, *total = 20, 0; }
int cudaMemcpyAsync(void *target, const void *source, size_t size, int kind, void *stream) {
  (void)target, (void)source;
  RECORD(cudaMemcpyAsync, "%zu bytes kind %d on %p", size, kind, stream);
}
int cudaMemsetAsync(void *target, int byte, size_t size, void *stream) {
  (void)target, (void)stream;
  RECORD(cudaMemsetAsync, "%zu bytes of 0x%02x", size, byte);
}
static int set16(unsigned long long target, unsigned short value, size_t count, void *stream) {
  (void)target, (void)stream;
  RECORD(cuMemsetD16Async, "%zu of 0x%04x", count, value);
}
static int set32(unsigned long long target, unsigned value, size_t count, void *stream) {
  (void)target, (void)stream;
  RECORD(cuMemsetD32Async, "%zu of 0x%08x", count, value);
}
static int encode_tiled(void *map, int type, unsigned rank, void *address,
                        const unsigned long long *sizes, const unsigned long long *strides,
                        const unsigned *box, const unsigned *element_strides, int interleave,
                        int swizzle, int promotion, int fill) {
  memset(map, 0x5A, 128);
  printf("address %s\n", (char *)address);
  for (unsigned i = 0; i < rank; ++i)
    printf("dimension of %llu box %u element stride %u\n", sizes[i], box[i], element_strides[i]);
  for (unsigned i = 0; i + 1 < rank; ++i)
    printf("stride of %llu bytes\n", strides[i]);
  RECORD(cuTensorMapEncodeTiled, "type %d rank %u interleave %d swizzle %d promotion %d fill %d", type,
         rank, interleave, swizzle, promotion, fill);
}
int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                            void *status) {
  (void)flags, (void)status;
  *function = strstr(name, "D16")       ? (void *)set16
              : strstr(name, "D32")     ? (void *)set32
              : strstr(name, "EncodeT") ? (void *)encode_tiled
                                        : NULL;
  return 0;
}
int cudaHostRegister(void *pointer, size_t size, unsigned flags) {
  (void)pointer;
  RECORD(cudaHostRegister, "%zu bytes flags %u", size, flags);
}
int cudaHostUnregister(void *pointer) { return (void)pointer, 0; }
int cudaHostGetDevicePointer(void **result, void *pointer, unsigned flags) {
  return (void)flags, *result = pointer, 0;
}
int cudaFuncSetAttribute(const void *function, int attribute, int value) {
  (void)function;
  RECORD(cudaFuncSetAttribute, "%d = %d", attribute, value);
}
int cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **params, size_t shared,
                     void *stream) {
  (void)function;
  RECORD(cudaLaunchKernel, "grid %u %u %u block %u %u %u shared %zu on %p with %d", grid.x, grid.y,
         grid.z, block.x, block.y, block.z, shared, stream, *(int *)params[0]);
}

typedef struct attribute {
  int id;
  char padding[4];
  unsigned value[16];
} attribute;

typedef struct config {
  dim3 grid, block;
  size_t shared;
  void *stream;
  attribute *attributes;
  unsigned count;
} config;

int cudaLaunchKernelExC(const config *launch, const void *function, void **params) {
  (void)function, (void)params;
  for (unsigned i = 0; i < launch->count; ++i) {
    const unsigned *value = launch->attributes[i].value;
    printf("attribute %d = %u", launch->attributes[i].id, value[0]);
    if (launch->attributes[i].id == 4)
      printf(" %u %u", value[1], value[2]);
    printf("\n");
  }
  RECORD(cudaLaunchKernelExC, "grid %u block %u shared %zu", launch->grid.x, launch->block.x,
         launch->shared);
}
int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = (dim3){9, 8, 7};
  *block = (dim3){6, 5, 4};
  *shared = 3;
  *(void **)stream = (void *)0x777;
  return status_of("__cudaPopCallConfiguration");
}
