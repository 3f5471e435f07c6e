// The greatest common divisor of 1071 and 462, without any GPU code.
//
// Shows: a file without kernels becomes a plain object file, like any other; no runtime is linked.
//
//   mlir-offload run plain.mlir

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @ok("plain: ok, gcd is %d\0A\00")
llvm.mlir.global internal constant @bad("plain: WRONG, gcd is %d\0A\00")

func.func private @gcd(%a: i32, %b: i32) -> i32 {
  %zero = arith.constant 0 : i32
  %result:2 = scf.while (%x = %a, %y = %b) : (i32, i32) -> (i32, i32) {
    %more = arith.cmpi ne, %y, %zero : i32
    scf.condition(%more) %x, %y : i32, i32
  } do {
  ^bb0(%x: i32, %y: i32):
    %rest = arith.remui %x, %y : i32
    scf.yield %y, %rest : i32, i32
  }
  return %result#0 : i32
}

func.func @main() -> i32 {
  %a = arith.constant 1071 : i32
  %b = arith.constant 462 : i32
  %expected = arith.constant 21 : i32
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %got = call @gcd(%a, %b) : (i32, i32) -> i32
  %right = arith.cmpi eq, %got, %expected : i32
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  llvm.call @printf(%text, %got) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i32) -> i32
  %status = arith.select %right, %zero, %one : i32
  return %status : i32
}
