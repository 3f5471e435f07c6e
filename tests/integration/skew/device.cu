// Device code, compiled as CUDA C++ and as HIP without the headers of either.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#ifdef __NVPTX__
#define THREAD __nvvm_read_ptx_sreg_tid_x()
#define BARRIER __syncthreads()
#else
#define THREAD __builtin_amdgcn_workitem_id_x()
#define BARRIER __builtin_amdgcn_s_barrier()
#endif
//--- saxpy
__global__ void saxpy(int n, float a, const float *x, float *y) {
  int i = THREAD;
  if (i < n) y[i] = a * x[i] + y[i];
}
//--- shared
static __shared__ float tile[64];
__global__ void shared(float *x) {
  int i = THREAD;
  tile[i] = x[i];
#ifdef __NVPTX__
  asm volatile("bar.sync 0;" ::: "memory");
#else
  BARRIER;
#endif
  x[i] = tile[63 - i];
}
//--- bounds
__global__ void __attribute__((launch_bounds(128, 2))) bounds(float *x) { x[THREAD] = 1; }
//--- variables
__constant__ float table[16] = {1, 2, 3};
__device__ int counter = 5;
extern __device__ int elsewhere;
__device__ int *pointer = &counter + 1;
__global__ void variables(float *x, int n) {
  counter += n;
  *pointer = elsewhere;
  *x = table[n & 15];
}
//--- atomics
__global__ void atomics(int *x, float *f) {
  __atomic_fetch_add(x, 1, __ATOMIC_RELAXED);
  __atomic_fetch_max(x + 1, 3, __ATOMIC_RELAXED);
  *f = __builtin_sqrtf(*f) / 3;
}
//--- aggregate
struct Pair { char c; double d; int a[3]; };
template <class T> __global__ void aggregate(T value, T *place) { *place = value; }
template __global__ void aggregate<Pair>(Pair, Pair *);
template __global__ void aggregate<long long>(long long, long long *);
//--- vectors
typedef _Float16 Half2 __attribute__((ext_vector_type(2)));
typedef float Four __attribute__((ext_vector_type(4)));
__global__ void vectors(Half2 *h, Four *f) {
  *h = *h + *h;
  *f = __builtin_elementwise_max(*f, f[1]);
}
//--- calls
extern "C" __device__ float outside(float);
__device__ __attribute__((noinline)) float inner(float x) { return x > 0 ? outside(x) : x; }
__global__ void calls(float *x, long n) {
  for (long i = 0; i < n; i++) x[i] = inner(x[i]);
}
