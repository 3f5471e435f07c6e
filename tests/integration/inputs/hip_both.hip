// Launches a kernel of an .mlir file, which launches one of this file.
#include "hip_bare.h"

extern "C" __global__ void scale(float *x, float a, long n);
extern "C" __global__ void shift(float *x, float a, long n) { x[n] += a; }
extern "C" void run_in_mlir(float *x);

int main() {
  scale<<<dim3(2), dim3(32), 16>>>(nullptr, 2.5f, 64);
  run_in_mlir(nullptr);
}
