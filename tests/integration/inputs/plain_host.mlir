// No GPU code: memref, linalg, scf, affine, math and calls out.
module {
  llvm.mlir.global internal constant @format("%f\0A\00")
  llvm.func @printf(!llvm.ptr, ...) -> i32
  func.func private @printI64(i64)
  memref.global "private" constant @table : memref<4xf32> = dense<[1.0, 2.0, 3.0, 4.0]>

  func.func @sum(%values: memref<?xf32>) -> f32 attributes {llvm.emit_c_interface} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %count = memref.dim %values, %c0 : memref<?xf32>
    %total = affine.for %i = 0 to %count iter_args(%acc = %zero) -> (f32) {
      %value = affine.load %values[%i] : memref<?xf32>
      %next = arith.addf %acc, %value : f32
      affine.yield %next : f32
    }
    return %total : f32
  }

  func.func @main() -> i32 {
    %c0 = arith.constant 0 : i32
    %c7 = arith.constant 7 : index
    %c2 = arith.constant 2 : index
    %table = memref.get_global @table : memref<4xf32>
    %copy = memref.alloc() : memref<4xf32>
    linalg.copy ins(%table : memref<4xf32>) outs(%copy : memref<4xf32>)
    %cast = memref.cast %copy : memref<4xf32> to memref<?xf32>
    %sum = func.call @sum(%cast) : (memref<?xf32>) -> f32
    %root = math.sqrt %sum : f32
    %wide = arith.extf %root : f32 to f64
    %format = llvm.mlir.addressof @format : !llvm.ptr
    %printed = llvm.call @printf(%format, %wide) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, f64) -> i32
    %rounded = arith.ceildivui %c7, %c2 : index
    %number = arith.index_cast %rounded : index to i64
    func.call @printI64(%number) : (i64) -> ()
    memref.dealloc %copy : memref<4xf32>
    return %c0 : i32
  }
}
