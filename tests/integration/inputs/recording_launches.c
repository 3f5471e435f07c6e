/* A libcudart that writes down which kernels are registered with which fat binary, and what each
 * launch asks for: the kernel by the stub that it names, its shape and its arguments. Every kernel
 * takes a pointer and 32 bits; with RECORD_STREAMS only the stream of a launch is written, whatever
 * the kernel takes. A program that has `launched` does itself what its kernels do. Fat binaries are
 * numbered in the order of their registration, and written to files where RECORD_FATBINS names a
 * directory. */
#define cudaLaunchKernel cudaLaunchKernelOfRuntimeTests
#define __cudaPopCallConfiguration __cudaPopCallConfigurationOfRuntimeTests
#include "../runtime/recording_cudart.c"
#undef cudaLaunchKernel
#undef __cudaPopCallConfiguration
#include <stdint.h>

typedef struct fatbin_wrapper {
  int magic, version;
  const void *data;
  void *unused;
} fatbin_wrapper;

typedef struct fatbin_header {
  uint32_t magic;
  uint16_t version, header_size;
  uint64_t size;
} fatbin_header;

typedef struct registered_kernel {
  const void *stub;
  const char *name;
  int fatbin;
} registered_kernel;

static registered_kernel kernels[64];
static int kernel_count, fatbin_count;
static struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} pushed;

void **__cudaRegisterFatBinary(const fatbin_wrapper *wrapper) {
  const char *directory = getenv("RECORD_FATBINS");
  const fatbin_header *header = wrapper->data;
  char path[512];
  ++fatbin_count;
  if (directory) {
    snprintf(path, sizeof path, "%s/%d.fatbin", directory, fatbin_count);
    FILE *file = fopen(path, "wb");
    fwrite(header, 1, header->header_size + header->size, file);
    fclose(file);
  }
  return (void **)(intptr_t)fatbin_count;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
void __cudaRegisterFunction(void **handle, const void *stub, char *function, const char *name) {
  (void)function;
  kernels[kernel_count++] = (registered_kernel){stub, name, (int)(intptr_t)handle};
}
void __cudaRegisterVar(void) {}
void __cudaRegisterManagedVar(void) {}
void __cudaRegisterSurface(void) {}
void __cudaRegisterTexture(void) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
  pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
  return 0;
}
int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared;
  *(void **)stream = pushed.stream;
  return 0;
}
__attribute__((weak)) void launched(const char *kernel, void **params);
int cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **params, size_t shared,
                     void *stream) {
  if (getenv("RECORD_STREAMS")) {
    printf("cudaLaunchKernel on %p\n", stream);
    return 0;
  }
  for (int i = 0; i < kernel_count; ++i)
    if (kernels[i].stub == stub && launched)
      launched(kernels[i].name, params);
    else if (kernels[i].stub == stub)
      printf("%s of %d: grid %u %u block %u %u shared %zu: %s 0x%x\n", kernels[i].name,
             kernels[i].fatbin, grid.x, grid.y, block.x, block.y, shared, *(char **)params[0],
             *(unsigned *)params[1]);
  return 0;
}
