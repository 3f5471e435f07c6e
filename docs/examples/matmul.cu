// matmul.mlir in CUDA C++, for comparison: the same kernel, the same host code.
//
//   nvcc -O2 -arch=sm_90 matmul.cu -o matmul && ./matmul [size]

#include <cstdio>
#include <cstdlib>

constexpr long TILE = 16;

__global__ void __launch_bounds__(TILE *TILE)
    matmul(const float *a, const float *b, float *c, long n) {
  __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE];
  long tx = threadIdx.x, ty = threadIdx.y;
  long row = blockIdx.y * TILE + ty, column = blockIdx.x * TILE + tx;
  float sum = 0;
  for (long k0 = 0; k0 < n; k0 += TILE) {
    tile_a[ty][tx] = a[row * n + k0 + tx];
    tile_b[ty][tx] = b[(k0 + ty) * n + column];
    __syncthreads();
    for (long k = 0; k < TILE; ++k)
      sum += tile_a[ty][k] * tile_b[k][tx];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

static void check(cudaError_t status) {
  if (status != cudaSuccess) {
    std::fprintf(stderr, "matmul: %s\n", cudaGetErrorString(status));
    std::exit(1);
  }
}

// Small whole numbers, so that every f32 sum is exact.
static float pattern(long i, long j, long p, long q) { return (float)(int)((i * p + j * q) % 7); }

static double row_times(const float *m, long row, const double *v, long n) {
  double sum = 0;
  for (long j = 0; j < n; ++j)
    sum += m[row * n + j] * v[j];
  return sum;
}

// The number of rows in which C * v differs from A * (B * v), for v = 1, 2, 3, ... (Freivalds)
static long wrong_rows(const float *a, const float *b, const float *c, long n) {
  double *v = (double *)std::malloc(n * sizeof(double));
  double *bv = (double *)std::malloc(n * sizeof(double));
  for (long j = 0; j < n; ++j)
    v[j] = (double)(j + 1);
  for (long k = 0; k < n; ++k)
    bv[k] = row_times(b, k, v, n);
  long wrong = 0;
  for (long i = 0; i < n; ++i)
    wrong += row_times(c, i, v, n) != row_times(a, i, bv, n);
  std::free(v);
  std::free(bv);
  return wrong;
}

static void multiply(const float *a, const float *b, float *c, long n) {
  size_t bytes = n * n * sizeof(float);
  float *da, *db, *dc;
  check(cudaMalloc(&da, bytes));
  check(cudaMalloc(&db, bytes));
  check(cudaMalloc(&dc, bytes));
  check(cudaMemcpy(da, a, bytes, cudaMemcpyHostToDevice));
  check(cudaMemcpy(db, b, bytes, cudaMemcpyHostToDevice));
  dim3 grid(n / TILE, n / TILE), block(TILE, TILE);
  matmul<<<grid, block>>>(da, db, dc, n);
  check(cudaGetLastError());
  check(cudaMemcpy(c, dc, bytes, cudaMemcpyDeviceToHost));
  check(cudaFree(da));
  check(cudaFree(db));
  check(cudaFree(dc));
}

int main(int argc, char **argv) {
  long size = argc > 1 ? std::atol(argv[1]) : 128;
  long n = (size + TILE - 1) / TILE * TILE;
  size_t bytes = n * n * sizeof(float);
  float *a = (float *)std::malloc(bytes), *b = (float *)std::malloc(bytes);
  float *c = (float *)std::malloc(bytes);
  for (long i = 0; i < n; ++i) {
    for (long j = 0; j < n; ++j) {
      a[i * n + j] = pattern(i, j, 3, 1);
      b[i * n + j] = pattern(i, j, 1, 2);
    }
  }
  multiply(a, b, c, n);
  long wrong = wrong_rows(a, b, c, n);
  std::free(a);
  std::free(b);
  std::free(c);
  if (wrong)
    std::printf("matmul: WRONG, %ld x %ld, %ld rows differ\n", n, n, wrong);
  else
    std::printf("matmul: ok, %ld x %ld\n", n, n);
  return wrong != 0;
}
