/* scale.h is made by: mlir-offload --emit-header=scale.h scale.mlir */
#include <stdio.h>

#include "scale.h"

int main(void) {
  float numbers[4] = {1, 2, 3, 4};
  mlir_memref_1d_f32 x = mlir_memref_1d_f32_of(numbers, 4);
  _mlir_ciface_scale(10, &x);
  for (int i = 0; i < 4; ++i)
    printf("%g\n", numbers[i]);
  return 0;
}
