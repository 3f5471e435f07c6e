// What cuda_program.cu says in CUDA C++.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @scale(%x: !llvm.ptr, %a: f32, %n: i64) kernel {
      llvm.store %a, %x : f32, !llvm.ptr
      gpu.return
    }
    gpu.func @narrow(%x: !llvm.ptr, %bit: i1, %byte: i8, %word: i16, %half: f16, %wide: f64) kernel {
      llvm.store %word, %x : i16, !llvm.ptr
      gpu.return
    }
    gpu.func @tile(%m: memref<?x?xf32>) kernel {
      %c0 = arith.constant 0 : index
      %v = memref.load %m[%c0, %c0] : memref<?x?xf32>
      memref.store %v, %m[%c0, %c0] : memref<?x?xf32>
      gpu.return
    }
  }
  func.func @main() -> i32 {
    %device = arith.constant 1 : i32
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %c32 = arith.constant 32 : index
    %shared = arith.constant 16 : i32
    %much = arith.constant 65536 : i32
    %a = arith.constant 2.5 : f32
    %n = arith.constant 64 : i64
    %bit = arith.constant true
    %byte = arith.constant -2 : i8
    %word = arith.constant 770 : i16
    %half = arith.constant 1.5 : f16
    %wide = arith.constant 0.25 : f64
    %one = arith.constant 1.0 : f32
    %status = arith.constant 0 : i32
    gpu.set_default_device %device
    %host = memref.alloc() : memref<8x8xf32>
    %any = memref.cast %host : memref<8x8xf32> to memref<*xf32>
    gpu.host_register %any : memref<*xf32>
    %shared_memory = gpu.alloc host_shared () : memref<8xf32>
    memref.store %one, %shared_memory[%c1] : memref<8xf32>
    %t0 = gpu.wait async
    %x, %t1 = gpu.alloc async [%t0] (%c8, %c8) : memref<?x?xf32>
    %from = memref.cast %host : memref<8x8xf32> to memref<?x?xf32>
    %t2 = gpu.memset async [%t1] %x, %one : memref<?x?xf32>, f32
    %t3 = gpu.memcpy async [%t2] %x, %from : memref<?x?xf32>, memref<?x?xf32>
    %address = memref.extract_aligned_pointer_as_index %x : memref<?x?xf32> -> index
    %bits = arith.index_cast %address : index to i64
    %p = llvm.inttoptr %bits : i64 to !llvm.ptr
    %t4 = gpu.launch_func async [%t3] @kernels::@scale blocks in (%c2, %c3, %c4) threads in (%c32, %c2, %c1)
        dynamic_shared_memory_size %shared args(%p : !llvm.ptr, %a : f32, %n : i64)
    %t5 = gpu.launch_func async [%t4] @kernels::@narrow blocks in (%c1, %c1, %c1) threads in (%c32, %c1, %c1)
        args(%p : !llvm.ptr, %bit : i1, %byte : i8, %word : i16, %half : f16, %wide : f64)
    %t6 = gpu.launch_func async [%t5] @kernels::@tile blocks in (%c2, %c1, %c1) threads in (%c8, %c8, %c1)
        dynamic_shared_memory_size %much args(%x : memref<?x?xf32>)
    %t7 = gpu.launch_func async [%t6] @kernels::@scale clusters in (%c2, %c1, %c1) blocks in (%c4, %c1, %c1)
        threads in (%c32, %c1, %c1) args(%p : !llvm.ptr, %a : f32, %n : i64)
    %t8 = gpu.memcpy async [%t7] %from, %x : memref<?x?xf32>, memref<?x?xf32>
    %t9 = gpu.dealloc async [%t8] %x : memref<?x?xf32>
    gpu.wait [%t9]
    return %status : i32
  }
}
