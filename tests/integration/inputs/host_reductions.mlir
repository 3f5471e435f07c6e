// Operations from which passes create a maximum or minimum: OPf and TY are replaced.
func.func @vector_OP_TY(%m: memref<4xTY>, %out: memref<TY>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : TY
  %v = vector.transfer_read %m[%c0], %zero : memref<4xTY>, vector<4xTY>
  %r = vector.reduction <OPf>, %v : vector<4xTY> into TY
  memref.store %r, %out[] : memref<TY>
  return
}
func.func @started_OP_TY(%m: memref<4xTY>, %out: memref<TY>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : TY
  %first = memref.load %m[%c0] : memref<4xTY>
  %v = vector.transfer_read %m[%c0], %zero : memref<4xTY>, vector<4xTY>
  %r = vector.reduction <OPf>, %v, %first : vector<4xTY> into TY
  memref.store %r, %out[] : memref<TY>
  return
}
func.func @multi_OP_TY(%m: memref<4xTY>, %out: memref<TY>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : TY
  %v = vector.transfer_read %m[%c0], %zero : memref<4xTY>, vector<4xTY>
  %w = vector.shape_cast %v : vector<4xTY> to vector<4x1xTY>
  %first = vector.extract %w[0] : vector<1xTY> from vector<4x1xTY>
  %s = vector.multi_reduction <OPf>, %w, %first [0] : vector<4x1xTY> to vector<1xTY>
  %r = vector.extract %s[0] : TY from vector<1xTY>
  memref.store %r, %out[] : memref<TY>
  return
}
func.func @affine_OP_TY(%m: memref<4xTY>, %out: memref<TY>) attributes {llvm.emit_c_interface} {
  %r = affine.parallel (%i) = (0) to (4) reduce ("OPf") -> (TY) {
    %x = affine.load %m[%i] : memref<4xTY>
    affine.yield %x : TY
  }
  memref.store %r, %out[] : memref<TY>
  return
}
func.func @linalg_OP_TY(%m: memref<4xTY>, %out: memref<TY>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %first = memref.load %m[%c0] : memref<4xTY>
  memref.store %first, %out[] : memref<TY>
  linalg.reduce ins(%m : memref<4xTY>) outs(%out : memref<TY>) dimensions = [0]
    (%x: TY, %y: TY) {
      %r = arith.OPf %x, %y : TY
      linalg.yield %r : TY
    }
  return
}
func.func @scf_OP_TY(%m: memref<4xTY>, %out: memref<TY>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %first = memref.load %m[%c0] : memref<4xTY>
  %r = scf.parallel (%i) = (%c0) to (%c4) step (%c1) init (%first) -> TY {
    %x = memref.load %m[%i] : memref<4xTY>
    scf.reduce(%x : TY) {
    ^bb0(%a: TY, %b: TY):
      %made = arith.OPf %a, %b : TY
      scf.reduce.return %made : TY
    }
  }
  memref.store %r, %out[] : memref<TY>
  return
}
func.func @atomic_OP_TY(%m: memref<4xTY>, %out: memref<TY>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %first = memref.load %m[%c0] : memref<4xTY>
  memref.store %first, %out[] : memref<TY>
  scf.for %i = %c0 to %c4 step %c1 {
    %x = memref.load %m[%i] : memref<4xTY>
    %old = memref.atomic_rmw OPf %x, %out[] : (TY, memref<TY>) -> TY
  }
  return
}
