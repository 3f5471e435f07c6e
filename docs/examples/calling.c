/* Calls the functions of calling.mlir by the header that is made of it:
 *
 *   mlir-offload --emit-header=calling.h calling.mlir calling.c -I. -o calling && ./calling
 */
#include "calling.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 4, COLUMNS = 8 };

int main(void) {
  static float x[ROWS][COLUMNS], y[ROWS][COLUMNS / 2];
  for (int i = 0; i < ROWS * COLUMNS; ++i)
    x[i / COLUMNS][i % COLUMNS] = (float)i;

  /* The left half of x: its rows are COLUMNS apart. */
  mlir_memref_2d_f32 from = mlir_memref_2d_f32_of(&x[0][0], ROWS, COLUMNS / 2);
  from.strides[0] = COLUMNS;
  mlir_memref_2d_f32 to = mlir_memref_2d_f32_of(&y[0][0], ROWS, COLUMNS / 2);
  _mlir_ciface_scale(2.0f, &from, &to);

  struct count_results counted;
  _mlir_ciface_count(&counted, 10);
  int64_t last = counted.result0.aligned[9];
  free(counted.result0.allocated);

  if (y[3][3] != 54.0f || last != 9 || counted.result1 != 45) {
    printf("calling: WRONG, %g, %lld, %lld\n", y[3][3], (long long)last,
           (long long)counted.result1);
    return EXIT_FAILURE;
  }
  printf("calling: ok, scaled and counted\n");
  return EXIT_SUCCESS;
}
