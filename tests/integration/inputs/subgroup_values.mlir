module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @ids(%out: memref<256x4xi32>) kernel {
      %i = gpu.global_id x
      %size = gpu.subgroup_size : index
      %id = gpu.subgroup_id : index
      %count = gpu.num_subgroups : index
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c3 = arith.constant 3 : index
      %v0 = arith.index_cast %size : index to i32
      %v1 = arith.index_cast %id : index to i32
      %v2 = arith.index_cast %count : index to i32
      memref.store %v0, %out[%i, %c0] : memref<256x4xi32>
      memref.store %v1, %out[%i, %c1] : memref<256x4xi32>
      memref.store %v2, %out[%i, %c2] : memref<256x4xi32>
      %lane = gpu.lane_id
      %l = arith.index_cast %lane : index to i32
      %sum = gpu.subgroup_reduce add %l : (i32) -> i32
      memref.store %sum, %out[%i, %c3] : memref<256x4xi32>
      gpu.return
    }
  }
  llvm.mlir.global internal constant @fmt("%d %d %d %d\0A\00")
  llvm.func @printf(!llvm.ptr, ...) -> i32
  func.func @main() -> i32 {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c100 = arith.constant 100 : index
    %c128 = arith.constant 128 : index
    %out = gpu.alloc host_shared () : memref<256x4xi32>
    gpu.launch_func @kernels::@ids blocks in (%c2, %c1, %c1) threads in (%c128, %c1, %c1) args(%out : memref<256x4xi32>)
    %c200 = arith.constant 200 : index
    %r0 = memref.load %out[%c200, %c0] : memref<256x4xi32>
    %r1 = memref.load %out[%c200, %c1] : memref<256x4xi32>
    %r2 = memref.load %out[%c200, %c2] : memref<256x4xi32>
    %r3 = memref.load %out[%c200, %c3] : memref<256x4xi32>
    %p = llvm.mlir.addressof @fmt : !llvm.ptr
    %x = llvm.call @printf(%p, %r0, %r1, %r2, %r3) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i32, i32, i32, i32) -> i32
    %z = arith.constant 0 : i32
    return %z : i32
  }
}
