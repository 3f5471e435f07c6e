// Where each block of a launch of 4 x 2 x 3 blocks is, in clusters of 2 x 1 x 3.
func.func @clusters(%out: memref<24x12xi64>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %device = gpu.alloc() : memref<24x12xi64>
  gpu.launch clusters(%cx, %cy, %cz) in (%kx = %c2, %ky = %c1, %kz = %c3) blocks(%bx, %by, %bz) in (%gx = %c4, %gy = %c2, %gz = %c3) threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    %m0 = arith.muli %bz, %gy : index
    %m1 = arith.addi %m0, %by : index
    %m2 = arith.muli %m1, %gx : index
    %number = arith.addi %m2, %bx : index
    %v0 = gpu.cluster_id x
    %i0 = arith.index_cast %v0 : index to i64
    %p0 = arith.constant 0 : index
    memref.store %i0, %device[%number, %p0] : memref<24x12xi64>
    %v1 = gpu.cluster_id y
    %i1 = arith.index_cast %v1 : index to i64
    %p1 = arith.constant 1 : index
    memref.store %i1, %device[%number, %p1] : memref<24x12xi64>
    %v2 = gpu.cluster_id z
    %i2 = arith.index_cast %v2 : index to i64
    %p2 = arith.constant 2 : index
    memref.store %i2, %device[%number, %p2] : memref<24x12xi64>
    %v3 = gpu.cluster_dim x
    %i3 = arith.index_cast %v3 : index to i64
    %p3 = arith.constant 3 : index
    memref.store %i3, %device[%number, %p3] : memref<24x12xi64>
    %v4 = gpu.cluster_dim y
    %i4 = arith.index_cast %v4 : index to i64
    %p4 = arith.constant 4 : index
    memref.store %i4, %device[%number, %p4] : memref<24x12xi64>
    %v5 = gpu.cluster_dim z
    %i5 = arith.index_cast %v5 : index to i64
    %p5 = arith.constant 5 : index
    memref.store %i5, %device[%number, %p5] : memref<24x12xi64>
    %v6 = gpu.cluster_block_id x
    %i6 = arith.index_cast %v6 : index to i64
    %p6 = arith.constant 6 : index
    memref.store %i6, %device[%number, %p6] : memref<24x12xi64>
    %v7 = gpu.cluster_block_id y
    %i7 = arith.index_cast %v7 : index to i64
    %p7 = arith.constant 7 : index
    memref.store %i7, %device[%number, %p7] : memref<24x12xi64>
    %v8 = gpu.cluster_block_id z
    %i8 = arith.index_cast %v8 : index to i64
    %p8 = arith.constant 8 : index
    memref.store %i8, %device[%number, %p8] : memref<24x12xi64>
    %v9 = gpu.cluster_dim_blocks x
    %i9 = arith.index_cast %v9 : index to i64
    %p9 = arith.constant 9 : index
    memref.store %i9, %device[%number, %p9] : memref<24x12xi64>
    %v10 = gpu.cluster_dim_blocks y
    %i10 = arith.index_cast %v10 : index to i64
    %p10 = arith.constant 10 : index
    memref.store %i10, %device[%number, %p10] : memref<24x12xi64>
    %v11 = gpu.cluster_dim_blocks z
    %i11 = arith.index_cast %v11 : index to i64
    %p11 = arith.constant 11 : index
    memref.store %i11, %device[%number, %p11] : memref<24x12xi64>
    gpu.terminator
  }
  gpu.memcpy %out, %device : memref<24x12xi64>, memref<24x12xi64>
  gpu.dealloc %device : memref<24x12xi64>
  return
}
