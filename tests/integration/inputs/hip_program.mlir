module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @scale(%x: !llvm.ptr, %a: f32, %n: i64) kernel attributes {known_block_size = array<i32: 32, 1, 1>} {
      %block = gpu.block_id x
      %size = gpu.block_dim x
      %thread = gpu.thread_id x
      %start = arith.muli %block, %size : index
      %index = arith.addi %start, %thread : index
      %i = arith.index_cast %index : index to i64
      %inside = arith.cmpi slt, %i, %n : i64
      scf.if %inside {
        %place = llvm.getelementptr %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
        %old = llvm.load %place : !llvm.ptr -> f32
        %new = arith.mulf %old, %a : f32
        llvm.store %new, %place : f32, !llvm.ptr
      }
      gpu.return
    }
  }
  func.func @main() -> i32 {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c32 = arith.constant 32 : index
    %shared = arith.constant 16 : i32
    %a = arith.constant 2.5 : f32
    %n = arith.constant 64 : i64
    %status = arith.constant 0 : i32
    %host = memref.alloc() : memref<64xf32>
    %t0 = gpu.wait async
    %x, %t1 = gpu.alloc async [%t0] () : memref<64xf32>
    %t2 = gpu.memcpy async [%t1] %x, %host : memref<64xf32>, memref<64xf32>
    %address = memref.extract_aligned_pointer_as_index %x : memref<64xf32> -> index
    %word = arith.index_cast %address : index to i64
    %pointer = llvm.inttoptr %word : i64 to !llvm.ptr
    %t3 = gpu.launch_func async [%t2] @kernels::@scale blocks in (%c2, %c1, %c1) threads in (%c32, %c1, %c1)
        dynamic_shared_memory_size %shared args(%pointer : !llvm.ptr, %a : f32, %n : i64)
    %t4 = gpu.memcpy async [%t3] %host, %x : memref<64xf32>, memref<64xf32>
    %t5 = gpu.dealloc async [%t4] %x : memref<64xf32>
    gpu.wait [%t5]
    return %status : i32
  }
}
