/* Runs each function of levels.mlir and compares what it computes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  float *allocated, *aligned;
  int64_t offset, sizes[2], strides[2];
} matrix;

#define MATRIX float *, float *, int64_t, int64_t, int64_t, int64_t, int64_t
#define VECTOR float *, float *, int64_t, int64_t, int64_t
matrix on_tensors(MATRIX, MATRIX, MATRIX);
void on_linalg(MATRIX, MATRIX, MATRIX);
void on_affine(VECTOR), on_loops(VECTOR), on_vectors(VECTOR), on_gpu(VECTOR);

#define GIVE(p, rows, columns) p, p, 0, rows, columns, columns, 1
enum { N = 104 };

int main(void) {
  float a[32], b[32], c[16] = {0}, wanted[16], v[N];
  for (int i = 0; i < 32; i++)
    a[i] = (float)i, b[i] = (float)(i % 5);
  for (int i = 0; i < 16; i++) {
    wanted[i] = 0;
    for (int k = 0; k < 8; k++)
      wanted[i] += a[i / 4 * 8 + k] * b[k * 4 + i % 4];
  }
  for (int i = 0; i < N; i++)
    v[i] = (float)i;
  on_linalg(GIVE(a, 4, 8), GIVE(b, 8, 4), GIVE(c, 4, 4));
  for (int i = 0; i < 16; i++)
    if (c[i] != wanted[i])
      return printf("linalg: %g at %d\n", c[i], i);
  matrix twice = on_tensors(GIVE(a, 4, 8), GIVE(b, 8, 4), GIVE(c, 4, 4));
  for (int i = 0; i < 16; i++)
    if (twice.aligned[i] != 2 * wanted[i])
      return printf("tensors: %g at %d\n", twice.aligned[i], i);
  free(twice.allocated);
  void (*functions[])(VECTOR) = {on_affine, on_loops, on_vectors, on_gpu};
  for (int f = 0; f < 4; f++) {
    functions[f](v, v, 0, N, 1);
    for (int i = 0; i < N; i++)
      if (v[i] != (float)((2 << f) * i))
        return printf("function %d: %g at %d\n", f, v[i], i);
  }
  puts("ok");
  return 0;
}
