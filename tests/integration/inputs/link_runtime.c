/* A libcudart, or with -DHIP a libamdhip64, for programs whose links are compared: it says which kernel
 * each launch names and which binary that kernel is registered with. Binaries are numbered in the order
 * of their registration, and written to the directory that LINKED_BINARIES names. */
#ifdef HIP
#define hipLaunchKernel hipLaunchKernelOfRecorder
#define __hipRegisterFatBinary __hipRegisterFatBinaryOfRecorder
#define __hipRegisterFunction __hipRegisterFunctionOfRecorder
#else
#define cudaLaunchKernel cudaLaunchKernelOfRecorder
#define __cudaRegisterFatBinary __cudaRegisterFatBinaryOfRecorder
#define __cudaRegisterFunction __cudaRegisterFunctionOfRecorder
#endif
#include "../runtime/recording_gpu.c"
#undef hipLaunchKernel
#undef __hipRegisterFatBinary
#undef __hipRegisterFunction
#undef cudaLaunchKernel
#undef __cudaRegisterFatBinary
#undef __cudaRegisterFunction

static struct {
  const void *stub;
  const char *name;
  int binary;
} registered[MOST];
static int registered_count, binary_count;

#ifdef HIP
/* Of a bundle: its images lie behind the table that says where each of them is. */
static size_t size_of(const char *content) {
  uint64_t count, size = 32;
  memcpy(&count, content + 24, sizeof count);
  for (const char *at = content + 32; count--;) {
    uint64_t entry[3];
    memcpy(entry, at, sizeof entry);
    if (entry[0] + entry[1] > size)
      size = entry[0] + entry[1];
    at += sizeof entry + entry[2];
  }
  return size;
}
#else
static size_t size_of(const char *content) {
  uint16_t header;
  uint64_t size;
  memcpy(&header, content + 6, sizeof header);
  memcpy(&size, content + 8, sizeof size);
  return header + size;
}
#endif

void **INTERNAL(RegisterFatBinary)(const fat_binary *binary) {
  char path[512];
  const char *directory = getenv("LINKED_BINARIES");
  snprintf(path, sizeof path, "%s/" PREFIX "%d", directory ? directory : ".", ++binary_count);
  FILE *file = fopen(path, "wb");
  fwrite(binary->content, 1, size_of((const char *)binary->content), file);
  fclose(file);
  return (void **)(intptr_t)binary_count;
}
int INTERNAL(RegisterFunction)(void **module, const void *stub, char *host_name, const char *name) {
  (void)host_name;
  registered[registered_count].stub = stub;
  registered[registered_count].name = name;
  registered[registered_count++].binary = (int)(intptr_t)module;
  return 0;
}
int API(LaunchKernel)(const void *stub, dim3 grid, dim3 block, void **params, size_t shared, void *stream) {
  (void)grid, (void)block, (void)params, (void)shared, (void)stream;
  for (int i = 0; i < registered_count; ++i)
    if (registered[i].stub == stub)
      return printf("%s of " PREFIX "%d ", registered[i].name, registered[i].binary), 0;
  return UNKNOWN_KERNEL;
}
