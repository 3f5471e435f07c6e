// Kernels that CUDA C++ launches, and launches of its kernels: see cuda_caller.cu.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @shift(%p: !llvm.ptr, %v: i32) kernel {
      llvm.store %v, %p : i32, !llvm.ptr
      gpu.return
    }
    gpu.func @_Z5blendPKcf(%p: !llvm.ptr, %v: f32) kernel {
      llvm.store %v, %p : f32, !llvm.ptr
      gpu.return
    }
    gpu.func @_ZN4mlir4fillEPKci(%p: !llvm.ptr, %v: i32) kernel {
      llvm.store %v, %p : i32, !llvm.ptr
      gpu.return
    }
  }
  gpu.module @cuda {
    llvm.func @scale(!llvm.ptr, f32) attributes {gpu.kernel}
    func.func private @_ZN4cuda3addIiEEvPT_S1_(!llvm.ptr, i32) attributes {gpu.kernel}
  }
  func.func @run_in_mlir(%p: !llvm.ptr) {
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %half = arith.constant 0.5 : f32
    %five = arith.constant 5 : i32
    gpu.launch_func @kernels::@shift blocks in (%one, %one, %one) threads in (%two, %one, %one) args(%p : !llvm.ptr, %five : i32)
    gpu.launch_func @cuda::@scale blocks in (%two, %one, %one) threads in (%one, %one, %one) args(%p : !llvm.ptr, %half : f32)
    gpu.launch_func @cuda::@_ZN4cuda3addIiEEvPT_S1_ blocks in (%one, %two, %one) threads in (%one, %one, %one) args(%p : !llvm.ptr, %five : i32)
    return
  }
}
