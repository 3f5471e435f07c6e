// y = a * x + exp(-y) for vectors of any length.
//
// Shows: a kernel written in place with gpu.launch, device memory, a guard for the last block,
// and math functions (on an NVIDIA GPU exp comes from libdevice, which is linked in by itself).
//
//   mlir-offload run saxpy.mlir               1048576 elements
//   mlir-offload run saxpy.mlir -- 16777216   as many as you like

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.func @atol(!llvm.ptr) -> i64
llvm.mlir.global internal constant @ok("saxpy: ok, %lld elements, max error %g\0A\00")
llvm.mlir.global internal constant @bad("saxpy: WRONG, %lld elements, max error %g\0A\00")

// The number in argv[1], or the default.
func.func private @size_argument(%argc: i32, %argv: !llvm.ptr, %default: i64) -> index {
  %one = arith.constant 1 : i32
  %given = arith.cmpi sgt, %argc, %one : i32
  %n = scf.if %given -> i64 {
    %slot = llvm.getelementptr %argv[1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
    %text = llvm.load %slot : !llvm.ptr -> !llvm.ptr
    %value = llvm.call @atol(%text) : (!llvm.ptr) -> i64
    scf.yield %value : i64
  } else {
    scf.yield %default : i64
  }
  %size = arith.index_cast %n : i64 to index
  return %size : index
}

// Run the kernel: one thread per element, 256 threads per block.
func.func private @saxpy(%n: index, %a: f32, %x: memref<?xf32>, %y: memref<?xf32>) {
  %c1 = arith.constant 1 : index
  %block = arith.constant 256 : index
  %grid = arith.ceildivui %n, %block : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %grid, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %block, %sy = %c1, %sz = %c1) {
    %start = arith.muli %bx, %sx : index
    %i = arith.addi %start, %tx : index
    // The last block may reach past the end.
    %inside = arith.cmpi ult, %i, %n : index
    scf.if %inside {
      %xi = memref.load %x[%i] : memref<?xf32>
      %yi = memref.load %y[%i] : memref<?xf32>
      %minus = arith.negf %yi : f32
      %decay = math.exp %minus : f32
      %scaled = arith.mulf %a, %xi : f32
      %sum = arith.addf %scaled, %decay : f32
      memref.store %sum, %y[%i] : memref<?xf32>
    }
    gpu.terminator
  }
  return
}

// Element i of the input: 0, 1/1024, 2/1024, ... up to 1, then again from 0.
func.func private @input(%i: index) -> f32 {
  %mask = arith.constant 1023 : index
  %scale = arith.constant 0.0009765625 : f32
  %low = arith.andi %i, %mask : index
  %int = arith.index_cast %low : index to i32
  %float = arith.sitofp %int : i32 to f32
  %value = arith.mulf %float, %scale : f32
  return %value : f32
}

func.func @main(%argc: i32, %argv: !llvm.ptr) -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %a = arith.constant 2.5 : f32
  %default = arith.constant 1048576 : i64
  %n = call @size_argument(%argc, %argv, %default) : (i32, !llvm.ptr, i64) -> index

  %x = memref.alloc(%n) : memref<?xf32>
  %y = memref.alloc(%n) : memref<?xf32>
  scf.for %i = %c0 to %n step %c1 {
    %value = func.call @input(%i) : (index) -> f32
    memref.store %value, %x[%i] : memref<?xf32>
    memref.store %value, %y[%i] : memref<?xf32>
  }

  // A GPU does not see memref.alloc: copy to memory of the device, run, copy back.
  %dx = gpu.alloc(%n) : memref<?xf32>
  %dy = gpu.alloc(%n) : memref<?xf32>
  gpu.memcpy %dx, %x : memref<?xf32>, memref<?xf32>
  gpu.memcpy %dy, %y : memref<?xf32>, memref<?xf32>
  call @saxpy(%n, %a, %dx, %dy) : (index, f32, memref<?xf32>, memref<?xf32>) -> ()
  gpu.memcpy %y, %dy : memref<?xf32>, memref<?xf32>
  gpu.dealloc %dx : memref<?xf32>
  gpu.dealloc %dy : memref<?xf32>

  // Compare with the same formula computed here.
  %error = scf.for %i = %c0 to %n step %c1 iter_args(%worst = %zero) -> f32 {
    %value = func.call @input(%i) : (index) -> f32
    %minus = arith.negf %value : f32
    %decay = math.exp %minus : f32
    %scaled = arith.mulf %a, %value : f32
    %expected = arith.addf %scaled, %decay : f32
    %got = memref.load %y[%i] : memref<?xf32>
    %difference = arith.subf %got, %expected : f32
    %distance = math.absf %difference : f32
    %larger = arith.maximumf %worst, %distance : f32
    scf.yield %larger : f32
  }
  memref.dealloc %x : memref<?xf32>
  memref.dealloc %y : memref<?xf32>

  // exp may differ in the last bits between libraries. A NaN is not "less than": it is wrong, too.
  %tolerance = arith.constant 1.0e-06 : f32
  %right = arith.cmpf ole, %error, %tolerance : f32
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  %count = arith.index_cast %n : index to i64
  %error64 = arith.extf %error : f32 to f64
  llvm.call @printf(%text, %count, %error64) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i64, f64) -> i32
  %success = arith.constant 0 : i32
  %failure = arith.constant 1 : i32
  %status = arith.select %right, %success, %failure : i32
  return %status : i32
}
