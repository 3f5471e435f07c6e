// Each function fills 64 numbers, those of a block of 64 threads.
func.func @reduce_i64(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %w = arith.extsi %t : i32 to i64
    %c = arith.constant 4294967296 : i64
    %v = arith.muli %w, %c : i64
    %s = gpu.subgroup_reduce add %v : (i64) -> i64
    %h = arith.divui %s, %c : i64
    %r = arith.trunci %h : i64 to i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}

func.func @reduce_f64(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %v = arith.sitofp %t : i32 to f64
    %s = gpu.subgroup_reduce maxnumf %v : (f64) -> f64
    %r = arith.fptosi %s : f64 to i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}

func.func @reduce_i8(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %v = arith.trunci %t : i32 to i8
    %s = gpu.subgroup_reduce xor %v : (i8) -> i8
    %u = gpu.subgroup_reduce maxui %v : (i8) -> i8
    %x = arith.addi %s, %u : i8
    %r = arith.extui %x : i8 to i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}

func.func @reduce_vector(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %e = arith.index_cast %tx : index to i32
    %b = vector.broadcast %e : i32 to vector<2xi32>
    %k = arith.constant dense<[1, 2]> : vector<2xi32>
    %v = arith.muli %b, %k : vector<2xi32>
    %s = gpu.subgroup_reduce add %v : (vector<2xi32>) -> vector<2xi32>
    %r = vector.reduction <add>, %s : vector<2xi32> into i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}

func.func @all_reduce_i8(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %c = arith.constant 70 : i32
    %n = arith.subi %t, %c : i32
    %v = arith.trunci %n : i32 to i8
    %lo = gpu.all_reduce minsi %v uniform {} : (i8) -> i8
    %hi = gpu.all_reduce maxui %v uniform {} : (i8) -> i8
    %a = arith.extsi %lo : i8 to i32
    %b = arith.extui %hi : i8 to i32
    %k = arith.constant 1000 : i32
    %m = arith.muli %b, %k : i32
    %r = arith.addi %m, %a : i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}

func.func @all_reduce_f16(%out: memref<?xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %t = arith.index_cast %tx : index to i32
    %one = arith.constant 0.5 : f16
    %s = gpu.all_reduce add %one uniform {} : (f16) -> f16
    %r = arith.fptosi %s : f16 to i32
    memref.store %r, %out[%tx] : memref<?xi32>
    gpu.terminator
  }
  return
}
