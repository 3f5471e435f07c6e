/* Calls the functions of host_memory.mlir on memory of many kinds, and compares what they leave. For the
 * libcudart of separate_memory.c it also is the GPU: `launched` does what the kernels do, and stops
 * the program where it gets memory that a GPU could not reach. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  float *allocated, *aligned;
  int64_t offset, size, stride;
} vector;

void _mlir_ciface_add(vector *, vector *), _mlir_ciface_scale(vector *);
/* Of separate_memory.c, which a program for the CPU has not. */
__attribute__((weak)) int on_device(const void *);
__attribute__((weak)) int cudaHostRegister(void *, size_t, unsigned);
enum { N = 8, MOST_PARAMS_BETWEEN = 9 };

static vector memref_at(void **params) {
  return (vector){*(float **)params[0], *(float **)params[1], *(int64_t *)params[2],
                  *(int64_t *)params[3], *(int64_t *)params[4]};
}

static int is_memref(void **params) {
  uint64_t first = *(uint64_t *)params[0], second = *(uint64_t *)params[1];
  return first == second && first > 0x10000;
}

static void check_reach(const void *pointer, const char *kernel) {
  if (!on_device(pointer)) {
    printf("%s works on memory of the host\n", kernel);
    exit(1);
  }
}

void launched(const char *kernel, void **params);
void launched(const char *kernel, void **params) {
  int second = 1;
  while (!is_memref(params + second) && second < MOST_PARAMS_BETWEEN)
    ++second;
  check_reach(*(void **)params[0], kernel);
  check_reach(*(void **)params[second], kernel);
  if (strstr(kernel, "scale")) {
    int is_first = *(uint64_t *)params[3] == N; /* the constant has no size */
    vector a = memref_at(params + (is_first ? 0 : second));
    float two = **(float **)params[is_first ? second : 0];
    for (int i = 0; i < N; ++i)
      a.aligned[i] *= two;
    return;
  }
  vector a = memref_at(params), b = memref_at(params + second);
  for (int i = 0; i < b.size; ++i)
    b.aligned[b.offset + i * b.stride] += a.aligned[a.offset + i * a.stride];
}

static int check(const char *what, const float *given, const float *wanted, int count) {
  for (int i = 0; i < count; ++i)
    if (given[i] != wanted[i])
      return printf("%s: %g at %d, not %g\n", what, given[i], i, wanted[i]), 1;
  return 0;
}

int main(void) {
  static float global[N];
  float local[N], *heap = malloc(2 * N * sizeof *heap), wanted[2 * N];
  for (int i = 0; i < N; ++i)
    global[i] = (float)i, local[i] = (float)(10 * i);
  for (int i = 0; i < 2 * N; ++i)
    heap[i] = wanted[i] = (float)(100 * i);
  /* Backwards, every other element. */
  vector a = {global, global, 0, N, 1}, b = {heap, heap, 2 * N - 1, N, -2};
  _mlir_ciface_add(&a, &b);
  for (int i = 0; i < N; ++i)
    wanted[2 * N - 1 - 2 * i] += global[i];
  int failed = check("strides", heap, wanted, 2 * N);
  /* Two memrefs of one buffer, the elements of one between those of the other. */
  vector even = {heap, heap, 0, N, 2}, odd = {heap, heap, 1, N, 2};
  _mlir_ciface_add(&even, &odd);
  for (int i = 0; i < N; ++i)
    wanted[2 * i + 1] += wanted[2 * i];
  failed |= check("overlap", heap, wanted, 2 * N);
  vector on_stack = {local, local, 0, N, 1};
  _mlir_ciface_scale(&on_stack);
  for (int i = 0; i < N; ++i)
    wanted[i] = (float)(20 * i);
  failed |= check("constant", local, wanted, N);
  if (cudaHostRegister && cudaHostRegister(global, sizeof global, 0))
    return puts("not registered"), 1;
  _mlir_ciface_scale(&a);
  for (int i = 0; i < N; ++i)
    wanted[i] = (float)(2 * i);
  failed |= check("registered", global, wanted, N);
  vector empty = {NULL, NULL, 0, 0, 1};
  _mlir_ciface_add(&empty, &empty);
  free(heap);
  return failed;
}
