// A function that C defines, and one that calls it.
func.func private @from_c(%x: memref<?xi64>) -> i64 attributes {llvm.emit_c_interface}
func.func @ask_c(%x: memref<?xi64>) -> i64 attributes {llvm.emit_c_interface} {
  %r = call @from_c(%x) : (memref<?xi64>) -> i64
  return %r : i64
}
