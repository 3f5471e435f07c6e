// Two kernels on two streams, each of which waits for the other one.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @meet(%count: memref<i32>) kernel {
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      %two = arith.constant 2 : i32
      %old = memref.atomic_rmw addi %one, %count[] : (i32, memref<i32>) -> i32
      scf.while : () -> () {
        %seen = memref.atomic_rmw addi %zero, %count[] : (i32, memref<i32>) -> i32
        %waits = arith.cmpi slt, %seen, %two : i32
        scf.condition(%waits)
      } do {
        scf.yield
      }
      gpu.return
    }
  }
  func.func @main() {
    %zero = arith.constant 0 : i32
    %c1 = arith.constant 1 : index
    %count = gpu.alloc host_shared () : memref<i32>
    memref.store %zero, %count[] : memref<i32>
    %a = gpu.wait async
    %b = gpu.wait async
    %c = gpu.launch_func async [%a] @kernels::@meet
        blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%count : memref<i32>)
    %d = gpu.launch_func async [%b] @kernels::@meet
        blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%count : memref<i32>)
    gpu.wait [%c, %d]
    return
  }
}
