#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// memref<?xf32> as MLIR lays it out.
struct memref_1d_f32 {
  float *allocated, *aligned;
  int64_t offset, size, stride;
};

// In scale.mlir.
void _mlir_ciface_scale(float factor, struct memref_1d_f32 *x, struct memref_1d_f32 *y);

int main(void) {
  enum { N = 1000 };
  static float x[N], y[N];
  for (int i = 0; i < N; ++i)
    x[i] = (float)i;

  struct memref_1d_f32 from = {x, x, 0, N, 1}, to = {y, y, 0, N, 1};
  _mlir_ciface_scale(2.0f, &from, &to);

  for (int i = 0; i < N; ++i) {
    if (y[i] != 2.0f * (float)i) {
      printf("scale: WRONG, y[%d] is %g\n", i, y[i]);
      return EXIT_FAILURE;
    }
  }
  printf("scale: ok, %d elements\n", N);
  return EXIT_SUCCESS;
}
