/* Compares the products of matrices.mlir with plain ones, and the places in clusters.mlir with what they are. */
#include <stdint.h>
#include <stdio.h>

typedef struct {
  void *allocated, *aligned;
  int64_t offset, sizes_and_strides[6];
} memref;
void _mlir_ciface_matrices(memref *, memref *, memref *);
void _mlir_ciface_clusters(memref *);

static float a(int i, int j) { return (float)((i + j) % 5 - 2); }
static float b(int i, int j) { return (float)((2 * i + j) % 7 - 3); }

static void matrices(void) {
  static const struct {
    const char *name;
    int depth, has_c;
  } ways[3] = {{"wmma", 16, 1}, {"mma.sync f16", 16, 0}, {"mma.sync tf32", 8, 0}};
  static float numbers[3][16][8];
  memref out = {numbers, numbers, 0, {3, 16, 8, 128, 8, 1}};
  static const float results[7] = {5, 6, 1.5f, 1, 3, 2, -3};
  static const int32_t whole_results[6] = {5, 9, -14, -3, 0, -7};
  static _Float16 each[7][256];
  static int32_t whole[6][256];
  memref elements = {each, each, 0, {7, 16, 16, 256, 16, 1}}, integers = {whole, whole, 0, {6, 16, 16, 256, 16, 1}};
  _mlir_ciface_matrices(&out, &elements, &integers);
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
  int wrong = 0;
  for (int i = 0; i < 256; ++i) {
    for (int kind = 0; kind < 7; ++kind)
      wrong += each[kind][i] != results[kind];
    for (int kind = 0; kind < 6; ++kind)
      wrong += whole[kind][i] != whole_results[kind];
  }
  printf("element by element: %d wrong\n", wrong);
}

static void clusters(void) {
  static int64_t places[3][2][4][12];
  memref out = {places, places, 0, {24, 12, 12, 1}};
  _mlir_ciface_clusters(&out);
  int wrong = 0;
  for (int z = 0; z < 3; ++z)
    for (int y = 0; y < 2; ++y)
      for (int x = 0; x < 4; ++x) {
        const int64_t wanted[12] = {x / 2, y, 0, 2, 2, 1, x % 2, 0, z, 2, 1, 3};
        for (int i = 0; i < 12; ++i)
          wrong += places[z][y][x][i] != wanted[i];
      }
  printf("clusters: %d wrong\n", wrong);
}

int main(void) { matrices(), clusters(); }
