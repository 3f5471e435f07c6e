// Functions of every type that C and Python can pass, and some more.
func.func @half(%h: f16) -> f16 attributes {llvm.emit_c_interface} {
  %r = arith.addf %h, %h : f16
  return %r : f16
}
func.func @bhalf(%h: bf16) -> bf16 attributes {llvm.emit_c_interface} {
  return %h : bf16
}
func.func @quarter(%q: f8E4M3FN) -> f8E4M3FN attributes {llvm.emit_c_interface} {
  return %q : f8E4M3FN
}
func.func @quarters(%x: memref<2xf8E5M2>) -> memref<2xf8E5M2> attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = memref.load %x[%c0] : memref<2xf8E5M2>
  memref.store %v, %x[%c1] : memref<2xf8E5M2>
  return %x : memref<2xf8E5M2>
}
func.func @vectors(%x: memref<?xvector<4xf32>>) -> memref<?xvector<3xi16>> attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %v = memref.load %x[%c0] : memref<?xvector<4xf32>>
  %s = arith.addf %v, %v : vector<4xf32>
  memref.store %s, %x[%c1] : memref<?xvector<4xf32>>
  %m = memref.alloc(%c2) : memref<?xvector<3xi16>>
  %k = arith.constant dense<[1, 2, 3]> : vector<3xi16>
  memref.store %k, %m[%c0] : memref<?xvector<3xi16>>
  memref.store %k, %m[%c1] : memref<?xvector<3xi16>>
  return %m : memref<?xvector<3xi16>>
}
func.func @flip(%b: i1) -> i1 attributes {llvm.emit_c_interface} {
  %t = arith.constant true
  %r = arith.xori %b, %t : i1
  return %r : i1
}
func.func @trunc(%b: i64) -> (i8) attributes {llvm.emit_c_interface} {
  %r = arith.trunci %b : i64 to i8
  return %r : i8
}
func.func @swap(%z: complex<f32>, %k: f64) -> complex<f32> attributes {llvm.emit_c_interface} {
  %a = complex.re %z : complex<f32>
  %b = complex.im %z : complex<f32>
  %r = complex.create %b, %a : complex<f32>
  return %r : complex<f32>
}
func.func @fill(%n: index, %v: f32) -> (i1, memref<?xf32>, complex<f64>, i8) attributes {llvm.emit_c_interface} {
  %m = memref.alloc(%n) : memref<?xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 { memref.store %v, %m[%i] : memref<?xf32> }
  %a = arith.constant 2.0 : f64
  %z = complex.create %a, %a : complex<f64>
  %t = arith.constant true
  %e = arith.constant -3 : i8
  return %t, %m, %z, %e : i1, memref<?xf32>, complex<f64>, i8
}
func.func @same(%x: memref<?x?xf64, strided<[?, ?], offset: 3>>) -> memref<?x?xf64, strided<[?, ?], offset: 3>> attributes {llvm.emit_c_interface} {
  return %x : memref<?x?xf64, strided<[?, ?], offset: 3>>
}
func.func @first(%x: memref<?x?xf64, strided<[?, ?], offset: 3>>) -> f64 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = memref.load %x[%c1, %c0] : memref<?x?xf64, strided<[?, ?], offset: 3>>
  return %r : f64
}
func.func @unr() -> memref<*xf32> attributes {llvm.emit_c_interface} {
  %m = memref.alloc() : memref<3xf32>
  %c0 = arith.constant 0 : index
  %v = arith.constant 5.0 : f32
  memref.store %v, %m[%c0] : memref<3xf32>
  %u = memref.cast %m : memref<3xf32> to memref<*xf32>
  return %u : memref<*xf32>
}
func.func @rank(%x: memref<*xf64>) -> index attributes {llvm.emit_c_interface} {
  %r = memref.rank %x : memref<*xf64>
  return %r : index
}
func.func @"odd-name.x"() attributes {llvm.emit_c_interface} { return }
memref.global "private" constant @k : memref<2xi32> = dense<[4, 5]>
func.func @const() -> memref<2xi32> attributes {llvm.emit_c_interface} {
  %g = memref.get_global @k : memref<2xi32>
  return %g : memref<2xi32>
}
func.func @parity(%n: i32) -> i1 attributes {llvm.emit_c_interface} {
  %bit = arith.trunci %n : i32 to i1
  return %bit : i1
}
func.func @sum(%a: i8, %b: i16, %c: i32, %d: f32, %e: f64) -> f64 attributes {llvm.emit_c_interface} {
  %a1 = arith.sitofp %a : i8 to f64
  %b1 = arith.sitofp %b : i16 to f64
  %c1 = arith.sitofp %c : i32 to f64
  %d1 = arith.extf %d : f32 to f64
  %s1 = arith.addf %a1, %b1 : f64
  %s2 = arith.addf %s1, %c1 : f64
  %s3 = arith.addf %s2, %d1 : f64
  %s4 = arith.addf %s3, %e : f64
  return %s4 : f64
}
func.func @single(%x: memref<i64>) -> i64 attributes {llvm.emit_c_interface} {
  %r = memref.load %x[] : memref<i64>
  return %r : i64
}
