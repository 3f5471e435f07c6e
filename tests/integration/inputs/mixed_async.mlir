// Synchronous operations, an explicit chain, a join of two tokens, a token used twice, and an
// asynchronous allocation of shared memory, all in one function.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @scale(%buffer: memref<64xf32>, %factor: f32) kernel {
      %i = gpu.thread_id x
      %old = memref.load %buffer[%i] : memref<64xf32>
      %new = arith.mulf %old, %factor : f32
      memref.store %new, %buffer[%i] : memref<64xf32>
      gpu.return
    }
  }

  func.func @main(%host: memref<64xf32>, %factor: f32) {
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %one = arith.constant 1.0 : f32

    %a = gpu.alloc () : memref<64xf32>
    gpu.memcpy %a, %host : memref<64xf32>, memref<64xf32>
    gpu.launch_func @kernels::@scale blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1)
        args(%a : memref<64xf32>, %factor : f32)
    gpu.memcpy %host, %a : memref<64xf32>, memref<64xf32>

    %t0 = gpu.wait async
    %b, %t1 = gpu.alloc async [%t0] () : memref<64xf32>
    %t2 = gpu.memset async [%t1] %b, %one : memref<64xf32>, f32
    %t3 = gpu.launch_func async [%t2] @kernels::@scale
        blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%b : memref<64xf32>, %factor : f32)
    // The token of %t3 is used twice.
    %t4 = gpu.memcpy async [%t3] %host, %b : memref<64xf32>, memref<64xf32>
    %shared, %t5 = gpu.alloc async [%t3] host_shared () : memref<64xf32>
    memref.store %one, %shared[%c1] : memref<64xf32>
    // Two dependencies.
    %t6 = gpu.memcpy async [%t4, %t5] %a, %b : memref<64xf32>, memref<64xf32>
    %t7 = gpu.dealloc async [%t6] %b : memref<64xf32>
    // No dependency.
    %t8 = gpu.memcpy async %host, %a : memref<64xf32>, memref<64xf32>
    gpu.wait [%t7, %t8]
    gpu.dealloc %a : memref<64xf32>
    gpu.dealloc %shared : memref<64xf32>
    return
  }
}
