/* A libcudart whose device has memory of its own: it copies, and says which addresses it can reach. */
#define cudaMalloc recordedMalloc
#define cudaMallocAsync recordedMallocAsync
#define cudaFree recordedFree
#define cudaFreeAsync recordedFreeAsync
#define cudaMemcpyAsync recordedMemcpyAsync
#define cudaHostRegister recordedHostRegister
#define cudaPointerGetAttributes recordedPointerGetAttributes
#include "recording_launches.c"
#undef cudaMalloc
#undef cudaMallocAsync
#undef cudaFree
#undef cudaFreeAsync
#undef cudaMemcpyAsync
#undef cudaHostRegister
#undef cudaPointerGetAttributes

enum { MOST_BLOCKS = 64 };
static struct {
  char *first;
  size_t size;
  int is_host;
} blocks[MOST_BLOCKS];
static int block_count;

static int keep(void *first, size_t size, int is_host) {
  blocks[block_count].first = first;
  blocks[block_count].size = size;
  blocks[block_count++].is_host = is_host;
  return block_count == MOST_BLOCKS;
}

int on_device(const void *pointer) {
  for (int i = 0; i < block_count; ++i)
    if (blocks[i].first <= (char *)pointer && (char *)pointer < blocks[i].first + blocks[i].size)
      return 1;
  return 0;
}

int cudaMalloc(void **pointer, size_t size) {
  *pointer = malloc(size);
  printf("cudaMalloc\n");
  return keep(*pointer, size, 0);
}
int cudaHostRegister(void *pointer, size_t size, unsigned flags) {
  (void)flags;
  return keep(pointer, size, 1);
}
int cudaFree(void *pointer) {
  for (int i = 0; i < block_count; ++i)
    if (blocks[i].first == pointer && !blocks[i].is_host) {
      blocks[i].size = 0;
      free(pointer);
      printf("cudaFree\n");
      return 0;
    }
  return 1;
}
int cudaMallocAsync(void **pointer, size_t size, void *stream) {
  return (void)stream, cudaMalloc(pointer, size);
}
int cudaFreeAsync(void *pointer, void *stream) { return (void)stream, cudaFree(pointer); }
int cudaMemcpyAsync(void *target, const void *source, size_t size, int kind, void *stream) {
  (void)kind, (void)stream;
  memcpy(target, source, size);
  return 0;
}
int cudaPointerGetAttributes(void **attributes, const void *pointer) {
  *(int *)attributes = 2;
  attributes[1] = on_device(pointer) ? (void *)pointer : NULL;
  return 0;
}
