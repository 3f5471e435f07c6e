// Functions that C defines, and functions that call them. Truncated numbers have other bits above theirs.
func.func private @from_c(%x: memref<?xi64>) -> i64 attributes {llvm.emit_c_interface}
func.func @ask_c(%x: memref<?xi64>) -> i64 attributes {llvm.emit_c_interface} {
  %r = call @from_c(%x) : (memref<?xi64>) -> i64
  return %r : i64
}
func.func private @small(%a: i8, %b: ui8, %c: i1, %d: i16, %e: memref<?xi64>, %f: ui16, %g: i8, %h: i1) -> i16
    attributes {llvm.emit_c_interface}
func.func private @plain(i8, i1, i16 {llvm.zeroext}) -> i64
llvm.func @variadic(i32, ...) -> i64
func.func @sum(%w: i64, %x: memref<?xi64>, %u: memref<1xui8>, %v: memref<1xui16>, %f: i64) -> (i16, i64, i64, i64)
    attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %a = arith.trunci %w : i64 to i8
  %c = arith.trunci %w : i64 to i1
  %d = arith.trunci %w : i64 to i16
  %b = memref.load %u[%c0] : memref<1xui8>
  %g = memref.load %v[%c0] : memref<1xui16>
  %r = call @small(%a, %b, %c, %d, %x, %g, %a, %c) : (i8, ui8, i1, i16, memref<?xi64>, ui16, i8, i1) -> i16
  %s = call @plain(%a, %c, %d) : (i8, i1, i16) -> i64
  %one = llvm.mlir.constant(1 : i32) : i32
  %t = llvm.call @variadic(%one, %a, %c, %d) vararg(!llvm.func<i64 (i32, ...)>) : (i32, i8, i1, i16) -> i64
  %q = llvm.inttoptr %f : i64 to !llvm.ptr
  %p = llvm.call %q(%a, %c, %d) : !llvm.ptr, (i8, i1, i16) -> i64
  return %r, %s, %t, %p : i16, i64, i64, i64
}
llvm.func @returned(%w: i64) -> i8 {
  %a = llvm.trunc %w : i64 to i8
  llvm.return %a : i8
}
