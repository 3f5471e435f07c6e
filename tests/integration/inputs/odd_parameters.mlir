// Kernels that take values of every size, vectors, a struct, and memrefs with strides.
func.func @odd(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c16 = arith.constant 16 : index
  %device = gpu.alloc() : memref<16xi64>
  // Each value depends on the host's memory, so that it is a parameter and no constant.
  %seed = memref.load %out[%c0] : memref<?xi64>
  %i1 = arith.trunci %seed : i64 to i1
  %i8 = arith.trunci %seed : i64 to i8
  %i16 = arith.trunci %seed : i64 to i16
  %i32 = arith.trunci %seed : i64 to i32
  %f16 = arith.sitofp %i8 : i8 to f16
  %f32 = arith.sitofp %i32 : i32 to f32
  // bf16 is the upper half of f32; a conversion would need a library on the host.
  %bits = arith.bitcast %f32 : f32 to i32
  %sixteen = arith.constant 16 : i32
  %upper = arith.shrui %bits, %sixteen : i32
  %half = arith.trunci %upper : i32 to i16
  %bf16 = arith.bitcast %half : i16 to bf16
  %f64 = arith.sitofp %seed : i64 to f64
  %f64_narrow = arith.truncf %f64 : f64 to f32
  %v3 = vector.broadcast %i32 : i32 to vector<3xi32>
  %v4 = vector.broadcast %f32 : f32 to vector<4xf32>
  %v2 = vector.broadcast %f16 : f16 to vector<2xf16>
  %b8 = vector.broadcast %i8 : i8 to vector<8xi8>
  // A struct of two.
  %z = complex.create %f32, %f64_narrow : complex<f32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    %n1 = arith.extui %i1 : i1 to i64
    %n8 = arith.extsi %i8 : i8 to i64
    %n16 = arith.extsi %i16 : i16 to i64
    %n32 = arith.extsi %i32 : i32 to i64
    %h = arith.fptosi %f16 : f16 to i64
    %b = arith.fptosi %bf16 : bf16 to i64
    %f = arith.fptosi %f32 : f32 to i64
    %d = arith.fptosi %f64 : f64 to i64
    %e3 = vector.extract %v3[2] : i32 from vector<3xi32>
    %e4 = vector.extract %v4[3] : f32 from vector<4xf32>
    %e2 = vector.extract %v2[1] : f16 from vector<2xf16>
    %e8 = vector.extract %b8[7] : i8 from vector<8xi8>
    %w3 = arith.extsi %e3 : i32 to i64
    %w4 = arith.fptosi %e4 : f32 to i64
    %w2 = arith.fptosi %e2 : f16 to i64
    %w8 = arith.extsi %e8 : i8 to i64
    %re = complex.re %z : complex<f32>
    %im = complex.im %z : complex<f32>
    %both = arith.addf %re, %im : f32
    %w = arith.fptosi %both : f32 to i64
    %k13 = arith.constant 13 : index
    memref.store %w, %device[%k13] : memref<16xi64>
    %k0 = arith.constant 0 : index
    %k1 = arith.constant 1 : index
    %k2 = arith.constant 2 : index
    %k3 = arith.constant 3 : index
    %k4 = arith.constant 4 : index
    %k5 = arith.constant 5 : index
    %k6 = arith.constant 6 : index
    %k7 = arith.constant 7 : index
    %k8 = arith.constant 8 : index
    %k9 = arith.constant 9 : index
    %k10 = arith.constant 10 : index
    %k11 = arith.constant 11 : index
    memref.store %n1, %device[%k0] : memref<16xi64>
    memref.store %n8, %device[%k1] : memref<16xi64>
    memref.store %n16, %device[%k2] : memref<16xi64>
    memref.store %n32, %device[%k3] : memref<16xi64>
    memref.store %h, %device[%k4] : memref<16xi64>
    memref.store %b, %device[%k5] : memref<16xi64>
    memref.store %f, %device[%k6] : memref<16xi64>
    memref.store %d, %device[%k7] : memref<16xi64>
    memref.store %w3, %device[%k8] : memref<16xi64>
    memref.store %w4, %device[%k9] : memref<16xi64>
    memref.store %w2, %device[%k10] : memref<16xi64>
    memref.store %w8, %device[%k11] : memref<16xi64>
    gpu.terminator
  }
  // A part of a memref, with a size and strides that only the descriptor tells.
  %part = memref.subview %device[12] [%c2] [%c2] : memref<16xi64> to memref<?xi64, strided<[?], offset: 12>>
  %odd = memref.cast %part : memref<?xi64, strided<[?], offset: 12>> to memref<?xi64, strided<[?], offset: ?>>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c2, %sy = %c1, %sz = %c1) {
    %size = memref.dim %odd, %bx : memref<?xi64, strided<[?], offset: ?>>
    %sum = arith.addi %size, %tx : index
    %number = arith.index_cast %sum : index to i64
    memref.store %number, %odd[%tx] : memref<?xi64, strided<[?], offset: ?>>
    gpu.terminator
  }
  %host = memref.subview %out[0] [16] [1] : memref<?xi64> to memref<16xi64, strided<[1]>>
  %flat = memref.cast %host : memref<16xi64, strided<[1]>> to memref<16xi64>
  gpu.memcpy %flat, %device : memref<16xi64>, memref<16xi64>
  gpu.dealloc %device : memref<16xi64>
  return
}
