// A kernel that uses the dialect: 42 is printed by each of two threads.
func.func @main() {
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %one, %gy = %one, %gz = %one)
             threads(%tx, %ty, %tz) in (%sx = %two, %sy = %one, %sz = %one) {
    %answer = "answer.value"() : () -> i32
    gpu.printf "the answer is %d\n", %answer : i32
    gpu.terminator
  }
  return
}
