// saxpy.mlir in CUDA C++, for comparison: the same kernel, the same host code.
//
//   nvcc -O2 -arch=sm_90 saxpy.cu -o saxpy && ./saxpy [elements]

#include <cmath>
#include <cstdio>
#include <cstdlib>

__global__ void saxpy(long n, float a, const float *x, float *y) {
  long i = (long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[i] + expf(-y[i]);
}

static void check(cudaError_t status) {
  if (status != cudaSuccess) {
    std::fprintf(stderr, "saxpy: %s\n", cudaGetErrorString(status));
    std::exit(1);
  }
}

static float input(long i) { return (float)(int)(i & 1023) * 0.0009765625f; }

int main(int argc, char **argv) {
  long n = argc > 1 ? std::atol(argv[1]) : 1048576;
  float a = 2.5f;
  size_t bytes = n * sizeof(float);
  float *x = (float *)std::malloc(bytes), *y = (float *)std::malloc(bytes);
  for (long i = 0; i < n; ++i)
    x[i] = y[i] = input(i);

  float *dx, *dy;
  check(cudaMalloc(&dx, bytes));
  check(cudaMalloc(&dy, bytes));
  check(cudaMemcpy(dx, x, bytes, cudaMemcpyHostToDevice));
  check(cudaMemcpy(dy, y, bytes, cudaMemcpyHostToDevice));
  saxpy<<<(n + 255) / 256, 256>>>(n, a, dx, dy);
  check(cudaGetLastError());
  check(cudaMemcpy(y, dy, bytes, cudaMemcpyDeviceToHost));
  check(cudaFree(dx));
  check(cudaFree(dy));

  float error = 0;
  for (long i = 0; i < n; ++i) {
    float value = input(i);
    float expected = a * value + std::exp(-value);
    float distance = std::fabs(y[i] - expected);
    if (!(distance <= error))
      error = distance;
  }
  std::free(x);
  std::free(y);
  bool right = error <= 1.0e-06f;
  std::printf("saxpy: %s, %ld elements, max error %g\n", right ? "ok" : "WRONG", n, error);
  return right ? 0 : 1;
}
