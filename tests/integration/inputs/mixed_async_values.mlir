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
  llvm.mlir.global internal constant @fmt("%f %f %f %f\0A\00")
  llvm.func @printf(!llvm.ptr, ...) -> i32
  func.func @main() -> i32 {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %one = arith.constant 1.0 : f32
    %three = arith.constant 3.0 : f32
    %host = memref.alloc() : memref<64xf32>
    %host2 = memref.alloc() : memref<64xf32>
    scf.for %i = %c0 to %c64 step %c1 {
      memref.store %three, %host[%i] : memref<64xf32>
    }
    // sync chain
    %a = gpu.alloc () : memref<64xf32>
    gpu.memcpy %a, %host : memref<64xf32>, memref<64xf32>
    gpu.launch_func @kernels::@scale blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%a : memref<64xf32>, %three : f32)
    gpu.memcpy %host, %a : memref<64xf32>, memref<64xf32>
    %r0 = memref.load %host[%c1] : memref<64xf32>     // 9
    // async chain, token used twice
    %t0 = gpu.wait async
    %b, %t1 = gpu.alloc async [%t0] () : memref<64xf32>
    %t2 = gpu.memset async [%t1] %b, %one : memref<64xf32>, f32
    %t3 = gpu.launch_func async [%t2] @kernels::@scale blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%b : memref<64xf32>, %three : f32)
    %t4 = gpu.memcpy async [%t3] %host, %b : memref<64xf32>, memref<64xf32>
    %shared, %t5 = gpu.alloc async [%t3] host_shared () : memref<64xf32>
    memref.store %one, %shared[%c1] : memref<64xf32>
    %t6 = gpu.memcpy async [%t4, %t5] %a, %b : memref<64xf32>, memref<64xf32>
    %t7 = gpu.dealloc async [%t6] %b : memref<64xf32>
    gpu.wait [%t7]
    %r1 = memref.load %host[%c1] : memref<64xf32>    // 3
    %t8 = gpu.memcpy async %host2, %a : memref<64xf32>, memref<64xf32>
    gpu.wait [%t8]
    %r2 = memref.load %host2[%c1] : memref<64xf32>    // 3
    gpu.launch_func @kernels::@scale blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%shared : memref<64xf32>, %three : f32)
    %r3 = memref.load %shared[%c1] : memref<64xf32>   // 3
    gpu.dealloc %a : memref<64xf32>
    gpu.dealloc %shared : memref<64xf32>
    %p = llvm.mlir.addressof @fmt : !llvm.ptr
    %d0 = arith.extf %r0 : f32 to f64
    %d1 = arith.extf %r1 : f32 to f64
    %d2 = arith.extf %r2 : f32 to f64
    %d3 = arith.extf %r3 : f32 to f64
    %x = llvm.call @printf(%p, %d0, %d1, %d2, %d3) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, f64, f64, f64, f64) -> i32
    %z = arith.constant 0 : i32
    return %z : i32
  }
}
