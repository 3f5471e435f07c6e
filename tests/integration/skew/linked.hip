// HIP: what the linked program registers is recorded.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
typedef struct { unsigned x, y, z; } dim3;
extern "C" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *);
extern "C" int __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, void *);
//--- kernel
__device__ int counter = 5;
__global__ void saxpy(int n, float a, const float *x, float *y) { y[n] = a * x[n] + counter; }
//--- sized
__global__ void sizes(unsigned short *x) { *x = __builtin_amdgcn_workgroup_size_x(); }
