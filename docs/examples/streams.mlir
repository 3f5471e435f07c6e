// Two streams work on one half each and meet for a third kernel that needs both.
//
// Shows: async tokens. An operation with `async [%t]` starts when %t is done; operations that hang
// on different tokens may overlap. gpu.wait without `async` holds the program until then.
//
//   mlir-offload run streams.mlir

module attributes {gpu.container_module} {

gpu.module @kernels {
  // data[i] = data[i] * data[i] + shift
  gpu.func @square(%data: memref<?xf32>, %shift: f32) kernel {
    %c0 = arith.constant 0 : index
    %n = memref.dim %data, %c0 : memref<?xf32>
    %tx = gpu.thread_id x
    %bx = gpu.block_id x
    %size = gpu.block_dim x
    %start = arith.muli %bx, %size : index
    %i = arith.addi %start, %tx : index
    %inside = arith.cmpi ult, %i, %n : index
    scf.if %inside {
      %value = memref.load %data[%i] : memref<?xf32>
      %square = arith.mulf %value, %value : f32
      %sum = arith.addf %square, %shift : f32
      memref.store %sum, %data[%i] : memref<?xf32>
    }
    gpu.return
  }
  // a[i] = a[i] - b[i]
  gpu.func @subtract(%a: memref<?xf32>, %b: memref<?xf32>) kernel {
    %c0 = arith.constant 0 : index
    %n = memref.dim %a, %c0 : memref<?xf32>
    %tx = gpu.thread_id x
    %bx = gpu.block_id x
    %size = gpu.block_dim x
    %start = arith.muli %bx, %size : index
    %i = arith.addi %start, %tx : index
    %inside = arith.cmpi ult, %i, %n : index
    scf.if %inside {
      %in_a = memref.load %a[%i] : memref<?xf32>
      %in_b = memref.load %b[%i] : memref<?xf32>
      %difference = arith.subf %in_a, %in_b : f32
      memref.store %difference, %a[%i] : memref<?xf32>
    }
    gpu.return
  }
}

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @ok("streams: ok, max error %g\0A\00")
llvm.mlir.global internal constant @bad("streams: WRONG, max error %g\0A\00")

// i mod 256 as f32: its square is exact.
func.func private @input(%i: index) -> f32 {
  %mask = arith.constant 255 : index
  %low = arith.andi %i, %mask : index
  %int = arith.index_cast %low : index to i32
  %value = arith.sitofp %int : i32 to f32
  return %value : f32
}

func.func private @work(%a: memref<?xf32>, %b: memref<?xf32>, %n: index) {
  %c1 = arith.constant 1 : index
  %block = arith.constant 128 : index
  %grid = arith.ceildivui %n, %block : index
  %three = arith.constant 3.0 : f32
  %one = arith.constant 1.0 : f32

  // The first stream: a * a + 3.
  %a0 = gpu.wait async
  %da, %a1 = gpu.alloc async [%a0] (%n) : memref<?xf32>
  %a2 = gpu.memcpy async [%a1] %da, %a : memref<?xf32>, memref<?xf32>
  %a3 = gpu.launch_func async [%a2] @kernels::@square
      blocks in (%grid, %c1, %c1) threads in (%block, %c1, %c1)
      args(%da : memref<?xf32>, %three : f32)

  // The second stream: b * b + 1. Nothing here depends on the first one.
  %b0 = gpu.wait async
  %db, %b1 = gpu.alloc async [%b0] (%n) : memref<?xf32>
  %b2 = gpu.memcpy async [%b1] %db, %b : memref<?xf32>, memref<?xf32>
  %b3 = gpu.launch_func async [%b2] @kernels::@square
      blocks in (%grid, %c1, %c1) threads in (%block, %c1, %c1)
      args(%db : memref<?xf32>, %one : f32)

  // Join: what follows waits for both, the program still runs on.
  %j0 = gpu.wait async [%a3, %b3]
  %j1 = gpu.launch_func async [%j0] @kernels::@subtract
      blocks in (%grid, %c1, %c1) threads in (%block, %c1, %c1)
      args(%da : memref<?xf32>, %db : memref<?xf32>)
  %j2 = gpu.memcpy async [%j1] %a, %da : memref<?xf32>, memref<?xf32>
  %j3 = gpu.dealloc async [%j2] %da : memref<?xf32>
  %j4 = gpu.dealloc async [%j3] %db : memref<?xf32>
  gpu.wait [%j4]
  return
}

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 100000 : index
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2.0 : f32
  %a = memref.alloc(%n) : memref<?xf32>
  %b = memref.alloc(%n) : memref<?xf32>
  scf.for %i = %c0 to %n step %c1 {
    %in_a = func.call @input(%i) : (index) -> f32
    %next = arith.addi %i, %c1 : index
    %in_b = func.call @input(%next) : (index) -> f32
    memref.store %in_a, %a[%i] : memref<?xf32>
    memref.store %in_b, %b[%i] : memref<?xf32>
  }

  call @work(%a, %b, %n) : (memref<?xf32>, memref<?xf32>, index) -> ()

  %error = scf.for %i = %c0 to %n step %c1 iter_args(%worst = %zero) -> f32 {
    %in_a = func.call @input(%i) : (index) -> f32
    %next = arith.addi %i, %c1 : index
    %in_b = func.call @input(%next) : (index) -> f32
    %square_a = arith.mulf %in_a, %in_a : f32
    %square_b = arith.mulf %in_b, %in_b : f32
    %between = arith.subf %square_a, %square_b : f32
    %expected = arith.addf %between, %two : f32
    %got = memref.load %a[%i] : memref<?xf32>
    %difference = arith.subf %got, %expected : f32
    %distance = math.absf %difference : f32
    %larger = arith.maximumf %worst, %distance : f32
    scf.yield %larger : f32
  }
  memref.dealloc %a : memref<?xf32>
  memref.dealloc %b : memref<?xf32>

  %right = arith.cmpf oeq, %error, %zero : f32
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  %error64 = arith.extf %error : f32 to f64
  llvm.call @printf(%text, %error64) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, f64) -> i32
  %success = arith.constant 0 : i32
  %failure = arith.constant 1 : i32
  %status = arith.select %right, %success, %failure : i32
  return %status : i32
}

}
