// The program of cuda_program.mlir, written in CUDA C++.
#include "cuda_bare.h"

struct attribute {
  int id;
  alignas(8) unsigned value[16];
};
struct config {
  dim3 grid, block;
  unsigned long shared;
  cudaStream_t stream;
  attribute *attributes;
  unsigned count;
};
extern "C" {
int cudaSetDevice(int);
int cudaHostRegister(void *, unsigned long, unsigned);
int cudaMallocManaged(void **, unsigned long, unsigned);
int cudaMallocAsync(void **, unsigned long, cudaStream_t);
int cudaFreeAsync(void *, cudaStream_t);
int cudaMemcpyAsync(void *, const void *, unsigned long, int, cudaStream_t);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
int cudaStreamSynchronize(cudaStream_t);
int cudaFuncSetAttribute(const void *, int, int);
int cudaLaunchKernelExC(const config *, const void *, void **);
int cudaGetDriverEntryPoint(const char *, void **, unsigned long long, void *);
}

extern "C" __global__ void scale(float *x, float a, long n) { *x = a; }
extern "C" __global__ void narrow(short *x, bool bit, char byte, short word, _Float16 half, double wide) { *x = word; }
extern "C" __global__ void tile(float *allocated, float *aligned, long offset, long rows, long columns,
                                long row_stride, long column_stride) {
  *aligned = 0;
}

int main() {
  static float host[64];
  void *shared, *x;
  cudaStream_t stream;
  int (*set)(unsigned long, unsigned, unsigned long, cudaStream_t);
  cudaSetDevice(1);
  cudaHostRegister(host, sizeof host, 0);
  cudaMallocManaged(&shared, 32, 1);
  cudaStreamCreateWithFlags(&stream, 1);
  cudaMallocAsync(&x, sizeof host, stream);
  cudaGetDriverEntryPoint("cuMemsetD32Async", (void **)&set, 0, nullptr);
  set((unsigned long)x, 0x3f800000, 64, stream);
  cudaMemcpyAsync(x, host, sizeof host, 4, stream);
  scale<<<dim3(2, 3, 4), dim3(32, 2), 16, stream>>>((float *)x, 2.5f, 64);
  narrow<<<1, 32, 0, stream>>>((short *)x, true, -2, 770, 1.5f, 0.25);
  cudaFuncSetAttribute((const void *)tile, 8, 65536);
  tile<<<2, dim3(8, 8), 65536, stream>>>((float *)x, (float *)x, 0, 8, 8, 8, 1);
  float a = 2.5f;
  long n = 64;
  void *arguments[] = {&x, &a, &n};
  attribute cluster = {4, {2, 1, 1}};
  config shape = {dim3(4), dim3(32), 0, stream, &cluster, 1};
  cudaLaunchKernelExC(&shape, (const void *)scale, arguments);
  cudaMemcpyAsync(host, x, sizeof host, 4, stream);
  cudaFreeAsync(x, stream);
  cudaStreamSynchronize(stream);
}
