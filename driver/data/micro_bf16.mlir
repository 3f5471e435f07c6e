// Numbers of type bf16: compiled to SPIR-V, which has them in an extension only.
module attributes {gpu.container_module} {

gpu.module @micro {
  gpu.func @kernel(%x: memref<?xbf16>, %y: memref<?xf32>) kernel {
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<?xbf16>
    %half = arith.constant 5.0e-01 : bf16
    %sum = arith.addf %v, %half : bf16
    %product = arith.mulf %sum, %v : bf16
    %root = math.sqrt %product : bf16
    %wide = arith.extf %root : bf16 to f32
    memref.store %wide, %y[%i] : memref<?xf32>
    %narrow = arith.truncf %wide : f32 to bf16
    memref.store %narrow, %x[%i] : memref<?xbf16>
    gpu.return
  }
}

}
