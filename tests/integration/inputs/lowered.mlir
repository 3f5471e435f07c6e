// What gpu-to-llvm and convert-gpu-to-nvvm leave: LLVM and NVVM operations only.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @fill(%buffer: !llvm.ptr, %value: f32) attributes {gpu.kernel, nvvm.kernel} {
      %thread = nvvm.read.ptx.sreg.tid.x : i32
      %index = llvm.sext %thread : i32 to i64
      %slot = llvm.getelementptr %buffer[%index] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      llvm.store %value, %slot : f32, !llvm.ptr
      llvm.return
    }
  }
  llvm.func @mgpuStreamCreate() -> !llvm.ptr
  llvm.func @mgpuStreamSynchronize(!llvm.ptr)
  llvm.func @mgpuStreamDestroy(!llvm.ptr)
  llvm.func @run(%buffer: !llvm.ptr, %value: f32) {
    %one = llvm.mlir.constant(1 : i64) : i64
    %stream = llvm.call @mgpuStreamCreate() : () -> !llvm.ptr
    gpu.launch_func <%stream : !llvm.ptr> @kernels::@fill blocks in (%one, %one, %one)
        threads in (%one, %one, %one) : i64 args(%buffer : !llvm.ptr, %value : f32)
    llvm.call @mgpuStreamSynchronize(%stream) : (!llvm.ptr) -> ()
    llvm.call @mgpuStreamDestroy(%stream) : (!llvm.ptr) -> ()
    llvm.return
  }
}
