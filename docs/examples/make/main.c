// Calls two kernels, of a file each.

#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>

int main(void) {
  enum { N = 1000 };
  static float x[N];
  for (int i = 0; i < N; ++i)
    x[i] = (float)i;

  struct memref_1d_f32 m = {x, x, 0, {N}, {1}};
  _mlir_ciface_scale(&m);
  _mlir_ciface_shift(&m);

  for (int i = 0; i < N; ++i) {
    if (x[i] != 2.0F * (float)i + 1.0F) {
      printf("scale: WRONG, x[%d] is %g\n", i, x[i]);
      return EXIT_FAILURE;
    }
  }
  printf("scale: ok, %d elements\n", N);
  return EXIT_SUCCESS;
}
