// Calls the kernel of square.mlir:
//
//   mlir-offload square.mlir main.c -o square && ./square

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// memref<?xf32> as MLIR lays it out; sizes and strides count elements, not bytes.
struct memref_1d_f32 {
  float *allocated; // what to free
  float *aligned;   // where the data is
  int64_t offset;   // of the first element, from aligned
  int64_t sizes[1];
  int64_t strides[1];
};

// func.func @square(memref<?xf32>, memref<?xf32>) attributes {llvm.emit_c_interface}
void _mlir_ciface_square(struct memref_1d_f32 *x, struct memref_1d_f32 *y);

static struct memref_1d_f32 describe(float *data, int64_t size) {
  struct memref_1d_f32 m = {data, data, 0, {size}, {1}};
  return m;
}

int main(void) {
  enum { N = 1000 };
  static float x[N], y[N];
  for (int i = 0; i < N; ++i)
    x[i] = (float)i;

  struct memref_1d_f32 from = describe(x, N), to = describe(y, N);
  _mlir_ciface_square(&from, &to);

  for (int i = 0; i < N; ++i) {
    if (y[i] != (float)i * (float)i) {
      printf("square: WRONG, y[%d] is %g\n", i, y[i]);
      return EXIT_FAILURE;
    }
  }
  printf("square: ok, %d elements\n", N);
  return EXIT_SUCCESS;
}
