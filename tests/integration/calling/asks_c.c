#include "asks_c.h"

#include <stdarg.h>
#include <stdio.h>

int64_t _mlir_ciface_from_c(mlir_memref_1d_i64 *x) { return x->aligned[x->offset] * 2; }

int16_t _mlir_ciface_small(int8_t a, uint8_t b, bool c, int16_t d, mlir_memref_1d_i64 *e, uint16_t f,
                           int8_t g, bool h) {
  int64_t *to = e->aligned;
  to[0] = a, to[1] = b, to[2] = c, to[3] = d, to[4] = f, to[5] = g, to[6] = h;
  return d;
}

int64_t plain(int8_t a, bool b, uint16_t c) { return a + 1000 * (int64_t)b + 1000000 * (int64_t)c; }
int64_t pointed(int8_t a, bool b, int16_t c) { return a + 1000 * (int64_t)b + 1000000 * (int64_t)c; }

int64_t variadic(int first, ...) {
  va_list list;
  va_start(list, first);
  int a = va_arg(list, int), b = va_arg(list, int), c = va_arg(list, int);
  va_end(list);
  return a + 1000 * (int64_t)b + 1000000 * (int64_t)c;
}

int8_t returned(int64_t wide);

int main(void) {
  int64_t number = 21, seen[7];
  mlir_memref_1d_i64 one = mlir_memref_1d_i64_of(&number, 1), all = mlir_memref_1d_i64_of(seen, 7);
  printf("%lld\n", (long long)_mlir_ciface_ask_c(&one));
  uint8_t byte = 200;
  uint16_t word = 50000;
  mlir_memref_1d_ui8 bytes = mlir_memref_1d_ui8_of(&byte, 1);
  mlir_memref_1d_ui16 words = mlir_memref_1d_ui16_of(&word, 1);
  struct sum_results results;
  _mlir_ciface_sum(&results, 0x123456789abc8085, &all, &bytes, &words, (int64_t)pointed);
  for (int place = 0; place < 7; ++place) printf("%lld ", (long long)seen[place]);
  printf("\n%d %lld %lld %lld %d\n", results.result0, (long long)results.result1,
         (long long)results.result2, (long long)results.result3, returned(0x12345685));
  return 0;
}
