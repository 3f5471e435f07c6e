#include <cstdio>

extern "C" int own(int);

__global__ void twice(int *number) { *number *= 2; }

static int twice_on_the_gpu(int number) {
  int *device;
  if (cudaMalloc(&device, sizeof number) != cudaSuccess)
    return -1;
  cudaMemcpy(device, &number, sizeof number, cudaMemcpyHostToDevice);
  twice<<<1, 1>>>(device);
  cudaMemcpy(&number, device, sizeof number, cudaMemcpyDeviceToHost);
  return number;
}

int main() { printf("%d %d\n", own(10), twice_on_the_gpu(21)); }
