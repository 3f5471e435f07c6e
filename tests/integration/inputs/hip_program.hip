// The program of hip_program.mlir, written in HIP C++.
#include "hip_bare.h"

extern "C" __global__ void scale(float *x, float a, long n) {
  long i = __builtin_amdgcn_workgroup_id_x() * 32 + __builtin_amdgcn_workitem_id_x();
  if (i < n)
    x[i] *= a;
}

int main() {
  float host[64] = {};
  void *x;
  hipStream_t stream;
  hipStreamCreateWithFlags(&stream, 1);
  hipMallocAsync(&x, sizeof host, stream);
  hipMemcpyAsync(x, host, sizeof host, 4, stream);
  scale<<<dim3(2), dim3(32), 16, stream>>>((float *)x, 2.5f, 64);
  hipMemcpyAsync(host, x, sizeof host, 4, stream);
  hipFreeAsync(x, stream);
  hipStreamSynchronize(stream);
  return 0;
}
