/* Compares what hopper.mlir computes with plain products and numbers. */
#include <stdint.h>
#include <stdio.h>

typedef struct {
  void *allocated, *aligned;
  int64_t offset, sizes_and_strides[4];
} memref;
void _mlir_ciface_product(memref *, memref *, memref *);
void _mlir_ciface_turns(memref *);
void _mlir_ciface_tile(memref *, memref *);
void _mlir_ciface_clear(memref *);

static _Float16 a[64][64], b[64][128]; /* the last four rows of a are outside of the tensor */
static float d[64][128];

static void product(void) {
  memref of_a = {a, a, 0, {60, 64, 64, 1}}, of_b = {b, b, 0, {64, 128, 128, 1}}, of_d = {d, d, 0, {64, 128, 128, 1}};
  int wrong = 0;
  for (int i = 0; i < 60; ++i)
    for (int k = 0; k < 64; ++k)
      a[i][k] = (_Float16)((i + 2 * k) % 9 - 4);
  for (int k = 0; k < 64; ++k)
    for (int j = 0; j < 128; ++j)
      b[k][j] = (_Float16)((3 * k + j) % 11 - 5);
  _mlir_ciface_product(&of_a, &of_b, &of_d);
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 128; ++j) {
      float sum = 0;
      for (int k = 0; k < 64; ++k)
        sum += (float)a[i][k] * (float)b[k][j];
      wrong += d[i][j] != sum;
    }
  printf("product: %d wrong\n", wrong);
}

static void turns(void) {
  static int32_t numbers[96];
  memref out = {numbers, numbers, 0, {96, 1}};
  int wrong = 0;
  _mlir_ciface_turns(&out);
  for (int i = 0; i < 96; ++i)
    wrong += numbers[i] != (i + 5) % 96;
  printf("turns: %d wrong\n", wrong);
}

static void tile(void) {
  static float from[4][8], to[4][8];
  memref source = {from, from, 0, {4, 8, 8, 1}}, target = {to, to, 0, {4, 8, 8, 1}};
  int wrong = 0;
  for (int i = 0; i < 32; ++i)
    from[i / 8][i % 8] = (float)(i + 1);
  _mlir_ciface_tile(&source, &target);
  for (int i = 0; i < 32; ++i)
    wrong += to[i / 8][i % 8] != (float)(i + 1);
  printf("tile: %d wrong\n", wrong);
}

static void clear(void) {
  static float numbers[128][16];
  memref all = {numbers, numbers, 0, {128, 16, 16, 1}};
  int wrong = 0;
  for (int i = 0; i < 2048; ++i)
    numbers[i / 16][i % 16] = 7;
  _mlir_ciface_clear(&all);
  for (int i = 0; i < 2048; ++i)
    wrong += numbers[i / 16][i % 16] != 0;
  printf("clear: %d wrong\n", wrong);
}

int main(void) { product(), turns(), tile(), clear(); }
