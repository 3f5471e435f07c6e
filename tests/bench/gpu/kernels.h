// What kernels.cu needs of CUDA C++ and of HIP C++, for clang without the headers of the vendor.
#pragma once

#if defined(__NVCC__)
#define GPU_EXP(x) expf(x)
#define GPU_MAX(x, y) fmaxf(x, y)
#else
#define GPU_MAX(x, y) __builtin_fmaxf(x, y)
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(n) __attribute__((launch_bounds(n)))
#if defined(__AMDGCN__)
#define GPU_EXP(x) __builtin_expf(x)
struct Thread { int x, y; };
#define threadIdx (Thread{(int)__builtin_amdgcn_workitem_id_x(), (int)__builtin_amdgcn_workitem_id_y()})
#define blockIdx (Thread{(int)__builtin_amdgcn_workgroup_id_x(), (int)__builtin_amdgcn_workgroup_id_y()})
#define blockDim (Thread{(int)__builtin_amdgcn_workgroup_size_x(), (int)__builtin_amdgcn_workgroup_size_y()})
#define gridDim (Thread{(int)(__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x()), (int)(__builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y())})
static __device__ inline void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#elif defined(__NVPTX__)
extern "C" __device__ float __nv_expf(float);
#define GPU_EXP(x) __nv_expf(x)
struct Thread { int x, y; };
#define threadIdx (Thread{__nvvm_read_ptx_sreg_tid_x(), __nvvm_read_ptx_sreg_tid_y()})
#define blockIdx (Thread{__nvvm_read_ptx_sreg_ctaid_x(), __nvvm_read_ptx_sreg_ctaid_y()})
#define blockDim (Thread{__nvvm_read_ptx_sreg_ntid_x(), __nvvm_read_ptx_sreg_ntid_y()})
#define gridDim (Thread{__nvvm_read_ptx_sreg_nctaid_x(), __nvvm_read_ptx_sreg_nctaid_y()})
#endif
#endif
