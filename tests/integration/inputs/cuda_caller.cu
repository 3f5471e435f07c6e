// CUDA C++ that launches kernels of MLIR, and whose own kernels MLIR launches (cuda_callee.mlir).
#include "cuda_bare.h"

// Defined in MLIR.
extern "C" __global__ void shift(const char *, int);
__global__ void blend(const char *, float);
namespace mlir {
__global__ void fill(const char *, int);
}
extern "C" void run_in_mlir(const char *);

// Launched from MLIR.
extern "C" __global__ void scale(float *values, float factor) { *values *= factor; }
namespace cuda {
template <class T> __global__ void add(T *values, T amount) { *values += amount; }
template __global__ void add<int>(int *, int);
} // namespace cuda

int main() {
  shift<<<dim3(2, 3), dim3(4, 5), 6>>>("from C++", 7);
  blend<<<1, 8>>>("from C++", 0.5f);
  mlir::fill<<<9, 1>>>("from C++", -1);
  run_in_mlir("from MLIR");
  scale<<<3, 1>>>((float *)"from C++", 2.0f);
}
