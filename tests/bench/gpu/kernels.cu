// The kernels of kernels.mlir in CUDA C++ and HIP C++; INDEX is the type of their indices.
#include "kernels.h"

#ifndef INDEX
#define INDEX long
#endif
typedef INDEX Index;

extern "C" __global__ void __launch_bounds__(256)
    saxpy(const float *x, float *y, float a, Index n) {
  Index step = (Index)gridDim.x * blockDim.x;
  for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
    y[i] = a * x[i] + y[i];
}

extern "C" __global__ void __launch_bounds__(256)
    matmul(const float *a, Index lda, const float *b, Index ldb, float *c, Index ldc, Index n) {
  __shared__ float tile_a[16][16], tile_b[16][16];
  Index tx = threadIdx.x, ty = threadIdx.y;
  Index row = (Index)blockIdx.y * 16 + ty, column = (Index)blockIdx.x * 16 + tx;
  float sum = 0;
  for (Index k0 = 0; k0 < n; k0 += 16) {
    tile_a[ty][tx] = a[row * lda + k0 + tx];
    tile_b[ty][tx] = b[(k0 + ty) * ldb + column];
    __syncthreads();
    for (Index k = 0; k < 16; ++k)
      sum += tile_a[ty][k] * tile_b[k][tx];
    __syncthreads();
  }
  c[row * ldc + column] = sum;
}

extern "C" __global__ void __launch_bounds__(256) reduction(const float *x, float *sums, Index n) {
  __shared__ float part[256];
  Index t = threadIdx.x, step = (Index)gridDim.x * 256;
  float sum = 0;
  for (Index i = (Index)blockIdx.x * 256 + t; i < n; i += step)
    sum += x[i];
  part[t] = sum;
  __syncthreads();
  for (Index half = 128; half > 0; half >>= 1) {
    if (t < half)
      part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0)
    sums[blockIdx.x] = part[0];
}

extern "C" __global__ void __launch_bounds__(256) transpose(const float *in, Index ldi, float *out, Index ldo) {
  __shared__ float tile[32][33];
  Index tx = threadIdx.x, ty = threadIdx.y;
  Index x0 = (Index)blockIdx.x * 32, y0 = (Index)blockIdx.y * 32;
  for (Index j = 0; j < 32; j += 8)
    tile[ty + j][tx] = in[(y0 + ty + j) * ldi + x0 + tx];
  __syncthreads();
  for (Index j = 0; j < 32; j += 8)
    out[(x0 + ty + j) * ldo + y0 + tx] = tile[tx][ty + j];
}

extern "C" __global__ void __launch_bounds__(256)
    stencil(const float *in, Index ldi, float *out, Index ldo, Index rows, Index n) {
  Index i = (Index)blockIdx.x * 256 + threadIdx.x + 1;
  if (i >= n - 1)
    return;
  for (Index row = 1; row < rows - 1; ++row) {
    float around = in[(row - 1) * ldi + i] + in[(row + 1) * ldi + i];
    around += in[row * ldi + i - 1];
    around += in[row * ldi + i + 1];
    out[row * ldo + i] = 0.5f * in[row * ldi + i] + 0.125f * around;
  }
}

extern "C" __global__ void __launch_bounds__(256)
    softmax(const float *in, Index ldi, float *out, Index ldo, Index n) {
  Index row = (Index)blockIdx.x * 256 + threadIdx.x;
  float most = -__builtin_inff(), sum = 0;
  for (Index j = 0; j < n; ++j)
    most = GPU_MAX(most, in[row * ldi + j]);
  for (Index j = 0; j < n; ++j)
    sum += GPU_EXP(in[row * ldi + j] - most);
  float scale = 1 / sum;
  for (Index j = 0; j < n; ++j)
    out[row * ldo + j] = GPU_EXP(in[row * ldi + j] - most) * scale;
}
