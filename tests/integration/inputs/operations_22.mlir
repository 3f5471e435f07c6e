// Operations that came after LLVM 19; as operations.mlir.
func.func @rotate(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %v, %ok = gpu.rotate %t, 3, 16 : i32
    %k = arith.constant -1 : i32
    %r = arith.select %ok, %v, %k : i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}

func.func @broadcast(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %f = arith.sitofp %t : i32 to f16
    %five = arith.constant 5 : i32
    %s = gpu.subgroup_broadcast %f, specific_lane %five : f16
    %r = arith.fptosi %s : f16 to i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}

func.func @shuffle_i8(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %v = arith.trunci %t : i32 to i8
    %one = arith.constant 1 : i32
    %w = arith.constant 32 : i32
    %s, %ok = gpu.shuffle xor %v, %one, %w : i8
    %r = arith.extui %s : i8 to i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}

func.func @lane_zero(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %l = gpu.lane_id
    %s = gpu.warp_execute_on_lane_0(%l)[32] args(%t : i32) -> (i32) {
    ^bb0(%a: i32):
      %k = arith.constant 100 : i32
      %b = arith.addi %a, %k : i32
      gpu.yield %b : i32
    }
    gpu.warp_execute_on_lane_0(%l)[32] {
      %z = arith.constant 7 : i32
      %one = arith.constant 64 : index
      %at = arith.addi %tx, %one : index
      memref.store %z, %out[%at] : memref<?xi32>
    }
    %r = arith.addi %s, %t : i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}
