/* Times kernels of a CPU image beside the same work in plain C: REFERENCE IMAGE.
 * Prints a line for each: name, milliseconds of the image, milliseconds of C. CPU time of one
 * thread, the least of several runs, taken in turn because the speed of a machine drifts.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mo_launch.h"

#define RUNS 9
enum { LENGTH = 1 << 24, BLOCK = 256, SIDE = 512, ROWS = 8, COLUMNS = 8 };

typedef void (*kernel_function)(const mo_launch *, void **);

static double milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void parallel_for(uint64_t count, mo_range body, void *argument) {
  body(argument, 0, count);
}

static void fail(const char *kernel, const char *message) {
  fprintf(stderr, "%s: %s\n", kernel, message);
  exit(1);
}

__attribute__((noinline)) static void saxpy(float a, const float *x, float *y) {
  for (long i = 0; i < LENGTH; ++i) y[i] = a * x[i] + y[i];
}

/* Sums of blocks; with partial sums, so that C may use vectors as well. */
__attribute__((noinline)) static void reduce(const float *x, float *sums) {
  for (long block = 0; block < LENGTH / BLOCK; ++block) {
    float partial[16] = {0}, sum = 0;
    for (int i = 0; i < BLOCK; i += 16)
      for (int lane = 0; lane < 16; ++lane) partial[lane] += x[block * BLOCK + i + lane];
    for (int lane = 0; lane < 16; ++lane) sum += partial[lane];
    sums[block] = sum;
  }
}

__attribute__((noinline)) static void matmul(const float *restrict a, const float *restrict b,
                                             float *restrict c) {
  for (int i = 0; i < SIDE; i += ROWS)
    for (int j = 0; j < SIDE; j += COLUMNS) {
      float tile[ROWS][COLUMNS] = {{0}};
      for (int k = 0; k < SIDE; ++k)
        for (int row = 0; row < ROWS; ++row)
          for (int column = 0; column < COLUMNS; ++column)
            tile[row][column] += a[(i + row) * SIDE + k] * b[k * SIDE + j + column];
      for (int row = 0; row < ROWS; ++row)
        memcpy(&c[(i + row) * SIDE + j], tile[row], sizeof tile[row]);
    }
}

typedef struct memref1 {
  float *data;
  int64_t offset, size, stride;
} memref1;

typedef struct memref2 {
  float *data;
  int64_t offset, sizes[2], strides[2];
} memref2;

static memref1 vector(float *data, int64_t size) { return (memref1){data, 0, size, 1}; }
static memref2 matrix(float *data) { return (memref2){data, 0, {SIDE, SIDE}, {SIDE, 1}}; }

#define VECTOR(v) &v.data, &v.data, &v.offset, &v.size, &v.stride
#define MATRIX(m) \
  &m.data, &m.data, &m.offset, &m.sizes[0], &m.sizes[1], &m.strides[0], &m.strides[1]

static float *numbers(long count, int period) {
  float *made = aligned_alloc(64, (size_t)count * sizeof *made);
  for (long i = 0; i < count; ++i) made[i] = (float)(i % period);
  return made;
}

static double least(double best, double start) {
  double took = milliseconds() - start;
  return took < best ? took : best;
}

static kernel_function find(void *image, const char *name) {
  kernel_function found;
  *(void **)&found = dlsym(image, name);
  if (found == NULL) fail(name, "not in the image");
  return found;
}

static void same(const char *name, const float *left, const float *right, long count) {
  if (memcmp(left, right, (size_t)count * sizeof *left) != 0) fail(name, "the results differ");
}

static mo_launch launch_of(uint32_t grid_x, uint32_t grid_y, uint32_t block_x, uint32_t block_y) {
  return (mo_launch){MO_LAUNCH_VERSION,     0,           {grid_x, grid_y, 1},
                     {block_x, block_y, 1}, parallel_for, fail};
}

static void time_vectors(void *image) {
  float a = 2, *x = numbers(LENGTH, 7), *y = numbers(LENGTH, 3), *z = numbers(LENGTH, 3);
  float *sums = numbers(LENGTH / BLOCK, 1), *expected = numbers(LENGTH / BLOCK, 1);
  memref1 vx = vector(x, LENGTH), vy = vector(y, LENGTH), vs = vector(sums, LENGTH / BLOCK);
  void *saxpy_params[] = {&a, VECTOR(vx), VECTOR(vy)}, *reduce_params[] = {VECTOR(vx), VECTOR(vs)};
  mo_launch launch = launch_of(LENGTH / BLOCK, 1, BLOCK, 1);
  double image_time[2] = {1e9, 1e9}, c_time[2] = {1e9, 1e9};
  for (int run = 0; run < RUNS; ++run) {
    double start = milliseconds();
    find(image, "saxpy")(&launch, saxpy_params);
    image_time[0] = least(image_time[0], start);
    start = milliseconds();
    saxpy(a, x, z);
    c_time[0] = least(c_time[0], start);
    start = milliseconds();
    find(image, "reduce")(&launch, reduce_params);
    image_time[1] = least(image_time[1], start);
    start = milliseconds();
    reduce(x, expected);
    c_time[1] = least(c_time[1], start);
  }
  same("saxpy", y, z, LENGTH);
  same("reduce", sums, expected, LENGTH / BLOCK);
  printf("saxpy %g %g\nreduce %g %g\n", image_time[0], c_time[0], image_time[1], c_time[1]);
}

static void time_matmul(void *image) {
  float *a = numbers(SIDE * SIDE, 5), *b = numbers(SIDE * SIDE, 3);
  float *c = numbers(SIDE * SIDE, 1), *expected = numbers(SIDE * SIDE, 1);
  memref2 ma = matrix(a), mb = matrix(b), mc = matrix(c);
  void *params[] = {MATRIX(ma), MATRIX(mb), MATRIX(mc)};
  mo_launch launch = launch_of(SIDE / 16, SIDE / 16, 16, 16);
  double image_time = 1e9, c_time = 1e9;
  for (int run = 0; run < RUNS; ++run) {
    double start = milliseconds();
    find(image, "matmul")(&launch, params);
    image_time = least(image_time, start);
    start = milliseconds();
    matmul(a, b, expected);
    c_time = least(c_time, start);
  }
  same("matmul", c, expected, SIDE * SIDE);
  printf("matmul %g %g\n", image_time, c_time);
}

int main(int argc, char **argv) {
  void *image = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (image == NULL) fail(argc == 2 ? argv[1] : "no image", argc == 2 ? dlerror() : "given");
  time_vectors(image);
  time_matmul(image);
  return 0;
}
