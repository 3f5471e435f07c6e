/* Times kernels of a CPU image next to the same work in plain C: REFERENCE IMAGE [NAME].
 * Prints a line for each: name, milliseconds of the image, milliseconds of C. CPU time of one
 * thread, the least of several runs, taken in turn because the speed of a machine drifts.
 * REFERENCE IMAGE two: name, milliseconds of the image on one thread and on two, elapsed time.
 */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mo_launch.h"

#define RUNS 15
#define PLAIN __attribute__((noinline)) static void
enum {
  COUNT = 1 << 20, BLOCK = 256, SIDE = 1024, MATRIX = 512, BODIES = 4096, ROWS = 1 << 16,
  SMALL = 16, TILE = 8, BINS = 256, LANES = 16, MATRICES = COUNT / (SMALL * SMALL)
};

typedef const float *restrict in;
typedef float *restrict out;

PLAIN saxpy(float a, in x, out y) {
  for (long i = 0; i < COUNT; ++i) y[i] = a * x[i] + y[i];
}

PLAIN axpy_f16(const _Float16 *restrict x, _Float16 *restrict y) {
  for (long i = 0; i < COUNT; ++i) y[i] = (_Float16)2 * x[i] + y[i];
}

PLAIN reduce(in x, out sums) {
  for (long block = 0; block < COUNT / BLOCK; ++block) {
    float partial[LANES] = {0}, sum = 0;
    for (int i = 0; i < BLOCK; i += LANES)
      for (int lane = 0; lane < LANES; ++lane) partial[lane] += x[block * BLOCK + i + lane];
    for (int lane = 0; lane < LANES; ++lane) sum += partial[lane];
    sums[block] = sum;
  }
}

PLAIN matmul(in a, in b, out c) {
  for (int i = 0; i < MATRIX; i += TILE)
    for (int j = 0; j < MATRIX; j += TILE) {
      float tile[TILE][TILE] = {{0}};
      for (int k = 0; k < MATRIX; ++k)
        for (int row = 0; row < TILE; ++row)
          for (int column = 0; column < TILE; ++column)
            tile[row][column] += a[(i + row) * MATRIX + k] * b[k * MATRIX + j + column];
      for (int row = 0; row < TILE; ++row)
        memcpy(&c[(i + row) * MATRIX + j], tile[row], sizeof tile[row]);
    }
}

PLAIN bmm(in x, in y, out z) {
  for (int n = 0; n < MATRICES; ++n) {
    const float *a = x + n * SMALL * SMALL, *b = y + n * SMALL * SMALL;
    for (int i = 0; i < SMALL; ++i) {
      float sum[SMALL] = {0};
      for (int k = 0; k < SMALL; ++k)
        for (int j = 0; j < SMALL; ++j) sum[j] += a[i * SMALL + k] * b[k * SMALL + j];
      memcpy(z + (n * SMALL + i) * SMALL, sum, sizeof sum);
    }
  }
}

PLAIN transpose(in x, out y) {
  for (int i = 0; i < SIDE; i += 32)
    for (int j = 0; j < SIDE; j += 32)
      for (int row = 0; row < 32; ++row)
        for (int column = 0; column < 32; ++column)
          y[(j + row) * SIDE + i + column] = x[(i + column) * SIDE + j + row];
}

PLAIN stencil(in x, out y) {
  for (int row = 1; row < SIDE - 1; ++row)
    for (int column = 1; column < SIDE - 1; ++column) {
      const float *p = x + row * SIDE + column;
      y[row * SIDE + column] = ((p[-1] + p[1]) + (p[-SIDE] + p[SIDE])) * 0.25f - p[0];
    }
}

PLAIN softmax(in x, out y) {
  for (int row = 0; row < SIDE; ++row) {
    const float *from = x + row * SIDE;
    float *to = y + row * SIDE, most[32], sums[32] = {0}, high = -1e30f, sum = 0;
    for (int lane = 0; lane < 32; ++lane) most[lane] = -1e30f;
    for (int j = 0; j < SIDE; j += 32)
      for (int lane = 0; lane < 32; ++lane)
        most[lane] = from[j + lane] > most[lane] ? from[j + lane] : most[lane];
    for (int lane = 0; lane < 32; ++lane) high = most[lane] > high ? most[lane] : high;
    for (int j = 0; j < SIDE; j += 32)
      for (int lane = 0; lane < 32; ++lane) {
        to[j + lane] = expf(from[j + lane] - high);
        sums[lane] += to[j + lane];
      }
    for (int lane = 0; lane < 32; ++lane) sum += sums[lane];
    for (int j = 0; j < SIDE; ++j) to[j] *= 1 / sum;
  }
}

PLAIN layernorm(in x, out y) {
  for (int row = 0; row < SIDE; ++row) {
    const float *from = x + row * SIDE;
    float *to = y + row * SIDE, sums[32] = {0}, squares[32] = {0}, mean = 0, variance = 0;
    for (int j = 0; j < SIDE; j += 32)
      for (int lane = 0; lane < 32; ++lane) sums[lane] += from[j + lane];
    for (int lane = 0; lane < 32; ++lane) mean += sums[lane] / SIDE;
    for (int j = 0; j < SIDE; j += 32)
      for (int lane = 0; lane < 32; ++lane) {
        float distance = from[j + lane] - mean;
        squares[lane] += distance * distance;
      }
    for (int lane = 0; lane < 32; ++lane) variance += squares[lane] / SIDE;
    float scale = 1 / sqrtf(variance + 1e-5f);
    for (int j = 0; j < SIDE; ++j) to[j] = (from[j] - mean) * scale;
  }
}

PLAIN scan(in x, out y) {
  for (long block = 0; block < COUNT; block += BLOCK) {
    float sum = 0;
    for (int i = 0; i < BLOCK; ++i) y[block + i] = sum += x[block + i];
  }
}

PLAIN blackscholes(in x, out y) {
  float discount = expf(-0.05f);
  for (long i = 0; i < COUNT; ++i) {
    float d = logf(x[i]) / 0.3f;
    y[i] = x[i] * erff(d) - discount * erff(d - 0.3f);
  }
}

PLAIN histogram(const int32_t *restrict x, int32_t *restrict bins) {
  for (long i = 0; i < COUNT; ++i) bins[x[i]]++;
}

PLAIN nbody(in x, in y, in z, out force) {
  for (int i = 0; i < BODIES; i += LANES) {
    float sums[LANES] = {0};
    for (int j = 0; j < BODIES; ++j)
      for (int lane = 0; lane < LANES; ++lane) {
        float dx = x[j] - x[i + lane], dy = y[j] - y[i + lane], dz = z[j] - z[i + lane];
        float w = dx * dx + dy * dy + dz * dz + 0.01f;
        sums[lane] += dx / (w * sqrtf(w));
      }
    memcpy(force + i, sums, sizeof sums);
  }
}

PLAIN spmv(const int32_t *restrict rows, const int32_t *restrict columns, in values, in x, out y) {
  for (int i = 0; i < ROWS; ++i) {
    float sum = 0;
    for (int j = rows[i]; j < rows[i + 1]; ++j) sum += values[j] * x[columns[j]];
    y[i] = sum;
  }
}

PLAIN bitonic(out x) {
  for (long block = 0; block < COUNT; block += BLOCK) {
    float *s = x + block;
    for (int k = 2; k <= BLOCK; k *= 2)
      for (int j = k / 2; j > 0; j /= 2)
        for (int t = 0; t < BLOCK; ++t) {
          int other = t ^ j;
          if (other <= t) continue;
          float a = s[t], b = s[other];
          if (t & k ? a < b : a > b) s[t] = b, s[other] = a;
        }
  }
}

/* Data and launches ------------------------------------------------------------------------- */

static float *x, *y, *z, *made, *expected;
static _Float16 *half_x, *half_made, *half_expected;
static int32_t *keys, *bins, *expected_bins, *rows, *columns;

static void *memory(size_t bytes) {
  void *found = aligned_alloc(64, bytes);
  memset(found, 0, bytes);
  return found;
}

static void fill(void) {
  size_t bytes = COUNT * sizeof *x;
  x = memory(bytes), y = memory(bytes), z = memory(bytes);
  made = memory(bytes), expected = memory(bytes);
  half_x = memory(bytes), half_made = memory(bytes), half_expected = memory(bytes);
  keys = memory(bytes), columns = memory(bytes), rows = memory((ROWS + 1) * sizeof *rows + 60);
  bins = memory(BINS * sizeof *bins), expected_bins = memory(BINS * sizeof *bins);
  for (uint32_t i = 0; i < COUNT; ++i) {
    x[i] = (float)(i * 2654435761u >> 20) / 4096 + 0.01f;
    y[i] = (float)(i * 40503u % 1000) / 1000;
    z[i] = (float)(i * 7919u % 1000) / 1000;
    half_x[i] = (_Float16)x[i];
    keys[i] = (int32_t)(i * 2654435761u >> 24);
    columns[i] = (int32_t)(i * 2654435761u >> 16);
  }
  for (int i = 0; i <= ROWS; ++i) rows[i] = i * (COUNT / ROWS);
}

static double milliseconds(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void on_one(uint64_t count, mo_range body, void *argument) { body(argument, 0, count); }

/* What the second thread runs; it waits actively, as a pool between two short launches does. */
static struct {
  mo_range body;
  void *argument;
  uint64_t from, to;
} half;
static _Atomic int begun, ended;

static void *second_thread(void *unused) {
  for (int number = 1;; ++number) {
    while (atomic_load(&begun) < number) {}
    half.body(half.argument, half.from, half.to);
    atomic_store(&ended, number);
  }
  return unused;
}

static void on_two(uint64_t count, mo_range body, void *argument) {
  half.body = body, half.argument = argument, half.from = count / 2, half.to = count;
  int number = atomic_fetch_add(&begun, 1) + 1;
  body(argument, 0, count / 2);
  while (atomic_load(&ended) < number) {}
}

static void fail(const char *kernel, const char *message) {
  fprintf(stderr, "%s: %s\n", kernel, message);
  exit(1);
}

typedef struct argument {
  void *data;
  int64_t count, width; /* of a matrix, if it is not 0 */
} argument;

enum { MOST_ARGUMENTS = 5 };

typedef struct bench {
  const char *name;
  uint32_t grid[2], block[2];
  argument arguments[MOST_ARGUMENTS];
  void (*plain)(void);
  void *made, *expected; /* set to the same numbers before each run */
  const void *before;    /* NULL: 0 */
  size_t bytes;
  float tolerance; /* 0: bytes are compared */
} bench;

static int set_parameters(const argument *given, int64_t *fields, void **parameters, int next) {
  int64_t row[] = {(int64_t)given->data, (int64_t)given->data, 0, given->count, 1};
  int64_t grid[] = {row[0], row[0], 0, given->width, given->width, given->width, 1};
  int length = given->width ? 7 : 5;
  memcpy(fields + next, given->width ? grid : row, (size_t)length * sizeof *fields);
  for (int i = 0; i < length; ++i) parameters[next + i] = fields + next + i;
  return next + length;
}

static void check(const bench *one) {
  const float *a = one->made, *b = one->expected;
  if (one->tolerance == 0 && memcmp(a, b, one->bytes) != 0) fail(one->name, "the results differ");
  for (size_t i = 0; one->tolerance != 0 && i < one->bytes / sizeof *a; ++i)
    if (!(fabsf(a[i] - b[i]) <= one->tolerance * (1 + fabsf(b[i]))))
      fail(one->name, "the results differ");
}

static void prepare(const bench *one, void *target) {
  if (one->before)
    memcpy(target, one->before, one->bytes);
  else
    memset(target, 0, one->bytes);
}

static void time_threads(const bench *one, void (*run)(const mo_launch *, void **),
                         mo_launch *launch, void **parameters) {
  double least[2] = {1e9, 1e9};
  for (int i = 0; i < 2 * RUNS; ++i) {
    launch->parallel_for = i % 2 ? on_two : on_one;
    prepare(one, one->made);
    double start = milliseconds(CLOCK_MONOTONIC);
    run(launch, parameters);
    double spent = milliseconds(CLOCK_MONOTONIC) - start;
    if (spent < least[i % 2]) least[i % 2] = spent;
  }
  printf("%s %g %g\n", one->name, least[0], least[1]);
}

static void time_kernel(void *image, const bench *one, int has_two) {
  static float factor = 2;
  void (*run)(const mo_launch *, void **), *parameters[MOST_ARGUMENTS * 7 + 1];
  int64_t fields[MOST_ARGUMENTS * 7 + 1];
  int next = 0;
  if (strcmp(one->name, "saxpy") == 0) parameters[next++] = &factor;
  for (int i = 0; i < MOST_ARGUMENTS && one->arguments[i].data; ++i)
    next = set_parameters(&one->arguments[i], fields, parameters, next);
  *(void **)&run = dlsym(image, one->name);
  if (run == NULL) fail(one->name, "not in the image");
  mo_launch launch = {MO_LAUNCH_VERSION, 0, {one->grid[0], one->grid[1], 1},
                      {one->block[0], one->block[1], 1}, on_one, fail};
  if (has_two) {
    time_threads(one, run, &launch, parameters);
    return;
  }
  double image_time = 1e9, plain_time = 1e9;
  for (int i = 0; i < RUNS; ++i) {
    prepare(one, one->made);
    prepare(one, one->expected);
    double start = milliseconds(CLOCK_THREAD_CPUTIME_ID);
    run(&launch, parameters);
    double middle = milliseconds(CLOCK_THREAD_CPUTIME_ID);
    one->plain();
    double end = milliseconds(CLOCK_THREAD_CPUTIME_ID);
    if (middle - start < image_time) image_time = middle - start;
    if (end - middle < plain_time) plain_time = end - middle;
  }
  check(one);
  printf("%s %g %g\n", one->name, image_time, plain_time);
}

#define RUN(name, call) static void run_##name(void) { name call; }
RUN(saxpy, (2, x, expected))
RUN(axpy_f16, (half_x, half_expected))
RUN(reduce, (x, expected))
RUN(matmul, (x, y, expected))
RUN(bmm, (x, y, expected))
RUN(transpose, (x, expected))
RUN(stencil, (x, expected))
RUN(softmax, (x, expected))
RUN(layernorm, (x, expected))
RUN(scan, (x, expected))
RUN(blackscholes, (x, expected))
RUN(histogram, (keys, expected_bins))
RUN(nbody, (x, y, z, expected))
RUN(spmv, (rows, columns, y, x, expected))
RUN(bitonic, (expected))

int main(int argc, char **argv) {
  void *image = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (image == NULL) fail(argc > 1 ? argv[1] : "no image", argc > 1 ? dlerror() : "given");
  fill();
  size_t all = COUNT * sizeof *x, square = MATRIX * MATRIX * sizeof *x;
  uint32_t blocks = COUNT / BLOCK, tiles = SIDE / 32;
  argument vx = {x, COUNT, 0}, vy = {y, COUNT, 0}, vm = {made, COUNT, 0};
  argument mx = {x, 0, SIDE}, mm = {made, 0, SIDE};
  bench benches[] = {
      {"saxpy", {blocks, 1}, {BLOCK, 1}, {vx, vm}, run_saxpy, made, expected, y, all, 0},
      {"axpy_f16", {blocks, 1}, {BLOCK, 1}, {{half_x, COUNT, 0}, {half_made, COUNT, 0}},
       run_axpy_f16, half_made, half_expected, half_x, all / 2, 0},
      {"reduce", {blocks, 1}, {BLOCK, 1}, {vx, vm}, run_reduce, made, expected, NULL, blocks * 4,
       1e-5f},
      {"matmul", {MATRIX / 16, MATRIX / 16}, {16, 16},
       {{x, 0, MATRIX}, {y, 0, MATRIX}, {made, 0, MATRIX}}, run_matmul, made, expected, NULL,
       square, 1e-4f},
      {"bmm", {MATRICES, 1}, {SMALL, SMALL}, {vx, vy, vm}, run_bmm, made, expected, NULL, all,
       1e-5f},
      {"transpose", {tiles, tiles}, {32, 32}, {mx, mm}, run_transpose, made, expected, NULL, all,
       0},
      {"stencil", {8, 128}, {128, 8}, {mx, mm}, run_stencil, made, expected, NULL, all, 1e-5f},
      {"softmax", {SIDE, 1}, {32, 1}, {vx, vm}, run_softmax, made, expected, NULL, all, 1e-5f},
      {"layernorm", {SIDE, 1}, {BLOCK, 1}, {vx, vm}, run_layernorm, made, expected, NULL, all,
       1e-4f},
      {"scan", {blocks, 1}, {BLOCK, 1}, {vx, vm}, run_scan, made, expected, NULL, all, 1e-4f},
      {"blackscholes", {blocks, 1}, {BLOCK, 1}, {vx, vm}, run_blackscholes, made, expected, NULL,
       all, 1e-4f},
      {"histogram", {64, 1}, {BLOCK, 1}, {{keys, COUNT, 0}, {bins, BINS, 0}}, run_histogram, bins,
       expected_bins, NULL, BINS * sizeof *bins, 0},
      {"nbody", {BODIES / BLOCK, 1}, {BLOCK, 1},
       {{x, BODIES, 0}, {y, BODIES, 0}, {z, BODIES, 0}, {made, BODIES, 0}}, run_nbody, made,
       expected, NULL, BODIES * 4, 1e-3f},
      {"spmv", {ROWS / BLOCK, 1}, {BLOCK, 1},
       {{rows, ROWS + 1, 0}, {columns, COUNT, 0}, vy, vx, vm}, run_spmv, made, expected, NULL,
       ROWS * 4, 1e-4f},
      {"bitonic", {blocks, 1}, {BLOCK, 1}, {vm}, run_bitonic, made, expected, x, all, 0},
  };
  int has_two = argc > 2 && strcmp(argv[2], "two") == 0;
  pthread_t thread;
  if (has_two) pthread_create(&thread, NULL, second_thread, NULL);
  for (size_t i = 0; i < sizeof benches / sizeof *benches; ++i)
    if (argc < 3 || has_two || strstr(argv[2], benches[i].name))
      time_kernel(image, &benches[i], has_two);
  return 0;
}
