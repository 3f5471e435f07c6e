#include "asks_c.h"

#include <stdio.h>

int64_t _mlir_ciface_from_c(mlir_memref_1d_i64 *x) { return x->aligned[x->offset] * 2; }

int main(void) {
  int64_t number = 21;
  mlir_memref_1d_i64 one = mlir_memref_1d_i64_of(&number, 1);
  printf("%lld\n", (long long)_mlir_ciface_ask_c(&one));
  return 0;
}
