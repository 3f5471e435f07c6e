// One fault in most kernels, or in what the host does; the argument chooses it.
#include "cuda_bare.h"

#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
extern "C" {
int cudaMalloc(void **, unsigned long);
int cudaFree(void *);
int cudaDeviceSynchronize(void);
int cudaMemcpyAsync(void *, const void *, unsigned long, int, cudaStream_t);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamQuery(cudaStream_t);
int strcmp(const char *, const char *);
int printf(const char *, ...);
__device__ void __assertfail(const char *, const char *, unsigned, const char *, unsigned long);
}
#define TID __nvvm_read_ptx_sreg_tid_x()
#define BLOCK __nvvm_read_ptx_sreg_ctaid_x()

__global__ void right(int *x) {
  __shared__ int words[64];
  words[TID] = (int)TID;
  __syncthreads();
  x[TID] = words[63 - TID];
}
__global__ void beyond(int *x) { x[64 + TID] = 1; }
__global__ void before(char *x) { x[-1 - (int)TID] = 1; }
__global__ void misaligned(char *x) { *(volatile int *)(x + 2) = 1; }
__global__ void null(int *x) { *(volatile int *)(x - x) = 1; }
// The second byte is the space before the third parameter.
extern "C" __global__ void beyond_parameter(int *x, char, int n) {
  short two;
  asm volatile("ld.param.u16 %0, [beyond_parameter_param_1];" : "=h"(two));
  x[TID] = two + n;
}
__global__ void beyond_shared(int *x) {
  __shared__ int words[63];
  words[TID] = (int)TID;
  __syncthreads();
  x[TID] = words[62 - TID / 2];
}
__global__ void race(int *x) {
  __shared__ int words[64];
  words[TID] = (int)TID;
  x[TID] = words[63 - TID];
}
__global__ void race_of_writes(int *x) {
  __shared__ int word;
  word = (int)TID;
  __syncthreads();
  x[TID] = word;
}
__global__ void race_in_a_warp(int *x) {
  __shared__ int words[32];
  if (TID < 32) {
    words[TID] = (int)TID;
    x[TID] = words[31 - TID] + __nvvm_shfl_sync_idx_i32(-1, (int)TID, 0, 31);
  }
}
__global__ void ordered_in_a_warp(int *x) {
  __shared__ int words[64];
  words[TID] = (int)TID;
  __nvvm_bar_warp_sync(-1);
  x[TID] = words[TID ^ 31];
}
__global__ void race_in_memory(int *x) {
  x[TID] = (int)TID;
  x[TID] += x[63 - TID];
}
__global__ void race_of_blocks(int *x) { x[TID] = (int)BLOCK; }
__global__ void race_with_an_atomic_operation(int *x) {
  if (BLOCK)
    __nvvm_atom_add_gen_i(x, 1);
  else
    *x = 5;
}
// Blocks, each of which writes what is its own; the last one that counts itself reads all.
__global__ void ordered_by_atomic_operations(int *x) {
  __shared__ int last;
  if (TID < 4)
    x[4 * BLOCK + TID + 1] = (int)TID;
  __syncthreads();
  __nvvm_membar_gl();
  if (TID == 0)
    last = __nvvm_atom_add_gen_i(x, 1);
  __syncthreads();
  if (last == 3 && TID == 63) {
    for (int i = 1; i < 17; ++i)
      x[17] += x[i];
    x[0] = 0;
  }
}
__global__ void ordered_in_memory(int *x) {
  ((char *)x)[TID] = (char)TID;
  x[20] = 7;
  __syncthreads();
  ((char *)x)[128 + TID] = ((char *)x)[63 - TID];
}
__global__ void divergent(int *x) {
  if (TID < 48)
    __syncthreads();
  x[TID] = 1;
}
__global__ void divergent_in_a_warp(int *x) {
  if (TID & 1) {
    x[TID] = 1;
    asm volatile("bar.sync 0;" ::: "memory");
  } else {
    x[TID] = 2;
    asm volatile("bar.sync 0; // another" ::: "memory");
    x[TID] = 3;
  }
}
__global__ void alone(int *x) {
  if (TID == 0)
    x[0] = __nvvm_shfl_sync_idx_i32(-1, x[0], 0, 31);
  else
    __syncthreads();
}
__global__ void without_itself(int *x) { x[TID] = __nvvm_shfl_sync_idx_i32(1, (int)TID, 0, 31); }
__global__ void traps(int *x) {
  if (TID == 5)
    __builtin_trap();
  x[TID] = 1;
}
__global__ void asserts(int *x) {
  if (TID % 32 == 5)
    __assertfail("x < 5", "faults.cu", 7, "asserts", 1);
  x[TID] = 1;
}

static const struct {
  const char *name;
  const void *kernel;
  unsigned blocks = 1;
} kernels[] = {
#define KERNEL(name) {#name, (const void *)name}
    KERNEL(right), KERNEL(beyond), KERNEL(before), KERNEL(misaligned), KERNEL(null), KERNEL(beyond_shared),
    KERNEL(beyond_parameter), KERNEL(race),
    KERNEL(race_of_writes), KERNEL(race_in_a_warp), KERNEL(ordered_in_a_warp), KERNEL(race_in_memory),
    KERNEL(ordered_in_memory), {"race_of_blocks", (const void *)race_of_blocks, 4},
    {"race_with_an_atomic_operation", (const void *)race_with_an_atomic_operation, 4},
    {"ordered_by_atomic_operations", (const void *)ordered_by_atomic_operations, 4}, KERNEL(divergent),
    KERNEL(divergent_in_a_warp), KERNEL(alone), KERNEL(without_itself), KERNEL(traps), KERNEL(asserts),
};

static void launch(const void *kernel, int *x, cudaStream_t stream) {
  void *parameters[] = {&x};
  cudaLaunchKernel(kernel, 1, 64, parameters, 0, stream);
}

int main(int, char **arguments) {
  int host[64] = {-1}, *x;
  const void *same = (const void *)right;
  cudaMalloc((void **)&x, sizeof host);
  for (auto &one : kernels)
    if (!strcmp(arguments[1], one.name)) {
      void *parameters[] = {&x, &x, &x};
      int status = cudaLaunchKernel(one.kernel, one.blocks, 64, parameters, 0, 0);
      int waited = cudaDeviceSynchronize();
      printf("launch %d, wait %d\n", status, waited);
    }
  if (!strcmp(arguments[1], "touched"))
    x[0] = 1;
  if (!strcmp(arguments[1], "freed")) {
    launch(same, x, 0);
    cudaFree(x);
    launch(same, x, 0);
    cudaDeviceSynchronize();
  }
  if (!strcmp(arguments[1], "host_memory")) {
    launch(same, host, 0);
    cudaDeviceSynchronize();
  }
  if (!strcmp(arguments[1], "late")) {
    cudaStream_t one, other;
    cudaStreamCreateWithFlags(&one, 1);
    cudaStreamCreateWithFlags(&other, 1);
    launch(same, x, one);
    cudaMemcpyAsync(host, x, sizeof host, 4, one);
    cudaStreamSynchronize(other);
    printf("%d %d ", cudaStreamQuery(one), host[0]);
    cudaStreamSynchronize(one);
    printf("%d %d\n", cudaStreamQuery(one), host[0]);
  }
}
