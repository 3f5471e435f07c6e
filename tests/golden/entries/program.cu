// What clang registers, as CUDA and as HIP, without the headers of either.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((managed))

struct dim3 {
  unsigned x, y, z;
};
extern "C" {
#ifdef __HIP__
int hipLaunchKernel(const void *, dim3, dim3, void **, __SIZE_TYPE__, struct hipStream *);
int __hipPopCallConfiguration(dim3 *, dim3 *, __SIZE_TYPE__ *, void *);
#else
int cudaLaunchKernel(const void *, dim3, dim3, void **, __SIZE_TYPE__, struct cudaStream *);
unsigned __cudaPopCallConfiguration(dim3 *, dim3 *, __SIZE_TYPE__ *, void *);
#endif

__global__ void kernel(int) {}
__device__ int counter = 7;
__device__ double table[16];
__constant__ float factor = 2.5f;
extern __device__ int elsewhere;
int *address_of_elsewhere() { return &elsewhere; }
#ifdef __HIP__
__managed__ long long managed = 3;
#endif
}

template <class T, int dim> struct __attribute__((device_builtin_surface_type)) surface;
template <int dim> struct __attribute__((device_builtin_surface_type)) surface<void, dim> {
  unsigned long long handle;
};
template <class T, int dim, int mode>
struct __attribute__((device_builtin_texture_type)) texture {
  unsigned long long handle;
};
extern "C" {
surface<void, 2> image;
texture<float, 2, 0> samples;
texture<float, 3, 1> normalized;
}
