/* Compares the products of matrices.mlir with plain ones. */
#include <stdint.h>
#include <stdio.h>

typedef struct {
  void *allocated, *aligned;
  int64_t offset, sizes_and_strides[6];
} memref;
void _mlir_ciface_matrices(memref *);

static float a(int i, int j) { return (float)((i + j) % 5 - 2); }
static float b(int i, int j) { return (float)((2 * i + j) % 7 - 3); }

int main(void) {
  static const struct {
    const char *name;
    int depth, has_c;
  } ways[3] = {{"wmma", 16, 1}, {"mma.sync f16", 16, 0}, {"mma.sync tf32", 8, 0}};
  static float numbers[3][16][8];
  memref out = {numbers, numbers, 0, {3, 16, 8, 128, 8, 1}};
  _mlir_ciface_matrices(&out);
  for (int way = 0; way < 3; ++way) {
    int wrong = 0;
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 8; ++j) {
        float sum = ways[way].has_c ? (float)(i - j) : 0;
        for (int k = 0; k < ways[way].depth; ++k)
          sum += a(i, k) * b(k, j);
        wrong += numbers[way][i][j] != sum;
      }
    printf("%s: %d wrong\n", ways[way].name, wrong);
  }
}

