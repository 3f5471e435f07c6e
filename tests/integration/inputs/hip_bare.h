// What HIP C++ needs of HIP's headers here.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))

struct dim3 {
  unsigned x, y, z;
  __host__ __device__ dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef int hipError_t;
typedef void *hipStream_t;
extern "C" {
hipError_t __hipPushCallConfiguration(dim3, dim3, unsigned long shared = 0, hipStream_t = nullptr);
hipError_t hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, hipStream_t);
hipError_t hipStreamCreateWithFlags(hipStream_t *, unsigned);
hipError_t hipStreamSynchronize(hipStream_t);
hipError_t hipMallocAsync(void **, unsigned long, hipStream_t);
hipError_t hipFreeAsync(void *, hipStream_t);
hipError_t hipMemcpyAsync(void *, const void *, unsigned long, int, hipStream_t);
}
