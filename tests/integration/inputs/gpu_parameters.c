/* Prints what the kernel of gpu_parameters.mlir got. */
#include <stdint.h>
#include <stdio.h>

typedef struct {
  int64_t *allocated, *aligned;
  int64_t offset, size, stride;
} numbers;
void _mlir_ciface_parameters(numbers *);

int main(void) {
  int64_t data[13] = {0};
  numbers all = {data, data, 0, 13, 1};
  _mlir_ciface_parameters(&all);
  for (int i = 0; i < 13; ++i)
    printf("%lld ", (long long)data[i]);
  return 0;
}
