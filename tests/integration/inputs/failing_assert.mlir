func.func @main() -> i32 {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c10 = arith.constant 10 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %ok = arith.cmpi ult, %tx, %c10 : index
    cf.assert %ok, "index too large"
    gpu.terminator
  }
  %z = arith.constant 0 : i32
  return %z : i32
}
