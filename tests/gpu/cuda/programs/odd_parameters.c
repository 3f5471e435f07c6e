/* Prints what the kernels of odd_parameters.mlir leave. */
#include <stdint.h>
#include <stdio.h>

typedef struct {
  void *allocated, *aligned;
  int64_t offset, size, stride;
} memref;
void _mlir_ciface_odd(memref *);

int main(void) {
  int64_t numbers[16] = {-77};
  memref out = {numbers, numbers, 0, 16, 1};
  _mlir_ciface_odd(&out);
  for (int i = 0; i < 14; ++i)
    printf("%lld ", (long long)numbers[i]);
  printf("%lld\n", (long long)numbers[14]);
}
