// What clang needs of CUDA's headers (-nocudainc).
#define __global__ __attribute__((global))
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef struct CUstream_st *cudaStream_t;
enum cudaError_t { cudaSuccess };
extern "C" {
unsigned __cudaPushCallConfiguration(dim3, dim3, unsigned long = 0, cudaStream_t = 0);
// What clang looks for in the device code, and where it does not know the release of CUDA.
cudaError_t cudaConfigureCall(dim3, dim3, unsigned long = 0, cudaStream_t = 0);
cudaError_t cudaLaunchKernel(const void *, dim3, dim3, void **, unsigned long, cudaStream_t);
}
