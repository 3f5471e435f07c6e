// Launches a kernel of an .mlir file by <<<>>> and by the address of its handle.
#include "hip_bare.h"

extern "C" __global__ void scale(float *x, float a, long n);

int main() {
  float *x = nullptr;
  float a = 2.5f;
  long n = 64;
  void *arguments[] = {&x, &a, &n};
  scale<<<dim3(2), dim3(32), 16>>>(x, a, n);
  return hipLaunchKernel((const void *)scale, dim3(2), dim3(32), arguments, 16, nullptr);
}
