module attributes {gpu.container_module} {
  gpu.module @lib2 {
    llvm.func @twice(%v: f32) -> f32 {
      %r = llvm.fadd %v, %v : f32
      llvm.return %r : f32
    }
    gpu.func @unused(%x: memref<?xf32>) kernel {
      gpu.return
    }
  }
}
