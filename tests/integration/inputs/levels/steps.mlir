func.func private @printf(!llvm.ptr)
func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c5 = arith.constant 5 : index
  %c100 = arith.constant 100 : index
  %c37 = arith.constant 37 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %m = memref.alloc() : memref<100x37xi32>
  affine.for %i = 0 to 100 { affine.for %j = 0 to 37 { affine.store %zero, %m[%i, %j] : memref<100x37xi32> } }
  scf.parallel (%i, %j) = (%c1, %c0) to (%c100, %c37) step (%c3, %c5) {
    %v = memref.load %m[%i, %j] : memref<100x37xi32>
    %w = arith.addi %v, %one : i32
    memref.store %w, %m[%i, %j] : memref<100x37xi32>
  }
  // 0 if each element of the steps, and no other, is 1.
  %wrong = scf.for %i = %c0 to %c100 step %c1 iter_args(%a = %zero) -> i32 {
    %b = scf.for %j = %c0 to %c37 step %c1 iter_args(%c = %a) -> i32 {
      %ri = arith.remui %i, %c3 : index
      %rj = arith.remui %j, %c5 : index
      %hi = arith.cmpi eq, %ri, %c1 : index
      %hj = arith.cmpi eq, %rj, %c0 : index
      %h = arith.andi %hi, %hj : i1
      %e = arith.extui %h : i1 to i32
      %v = memref.load %m[%i, %j] : memref<100x37xi32>
      %x = arith.cmpi ne, %v, %e : i32
      %y = arith.extui %x : i1 to i32
      %d = arith.ori %c, %y : i32
      scf.yield %d : i32
    }
    scf.yield %b : i32
  }
  return %wrong : i32
}
