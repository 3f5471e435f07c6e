// C = A * B for square f32 matrices, tile by tile.
//
// Shows: a kernel in a gpu.module launched by gpu.launch_func, a two-dimensional grid,
// workgroup (shared) memory and gpu.barrier.
//
//   mlir-offload run matmul.mlir           128 x 128
//   mlir-offload run matmul.mlir -- 512    any size, rounded up to a multiple of 16

module attributes {gpu.container_module} {

gpu.module @kernels {
  // A block of 16 x 16 threads computes one 16 x 16 tile of C, each thread one element of it.
  gpu.func @matmul(%a: memref<?x?xf32>, %b: memref<?x?xf32>, %c: memref<?x?xf32>, %n: index)
      workgroup(%tile_a: memref<16x16xf32, #gpu.address_space<workgroup>>,
                %tile_b: memref<16x16xf32, #gpu.address_space<workgroup>>)
      kernel attributes {gpu.known_block_size = array<i32: 16, 16, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %tile = arith.constant 16 : index
    %zero = arith.constant 0.0 : f32
    %tx = gpu.thread_id x
    %ty = gpu.thread_id y
    %bx = gpu.block_id x
    %by = gpu.block_id y
    %first_row = arith.muli %by, %tile : index
    %first_column = arith.muli %bx, %tile : index
    %row = arith.addi %first_row, %ty : index
    %column = arith.addi %first_column, %tx : index

    %sum = scf.for %k0 = %c0 to %n step %tile iter_args(%partial = %zero) -> f32 {
      // Every thread brings one element of each tile.
      %ka = arith.addi %k0, %tx : index
      %kb = arith.addi %k0, %ty : index
      %from_a = memref.load %a[%row, %ka] : memref<?x?xf32>
      %from_b = memref.load %b[%kb, %column] : memref<?x?xf32>
      memref.store %from_a, %tile_a[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
      memref.store %from_b, %tile_b[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
      gpu.barrier // the tiles are complete
      %next = scf.for %k = %c0 to %tile step %c1 iter_args(%acc = %partial) -> f32 {
        %ea = memref.load %tile_a[%ty, %k] : memref<16x16xf32, #gpu.address_space<workgroup>>
        %eb = memref.load %tile_b[%k, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
        %product = arith.mulf %ea, %eb : f32
        %new = arith.addf %acc, %product : f32
        scf.yield %new : f32
      }
      gpu.barrier // nobody needs the tiles any more
      scf.yield %next : f32
    }
    memref.store %sum, %c[%row, %column] : memref<?x?xf32>
    gpu.return
  }
}

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.func @atol(!llvm.ptr) -> i64
llvm.mlir.global internal constant @ok("matmul: ok, %lld x %lld\0A\00")
llvm.mlir.global internal constant @bad("matmul: WRONG, %lld x %lld, %lld rows differ\0A\00")

// (i * p + j * q) mod 7: small whole numbers, so that every f32 sum below is exact.
func.func private @pattern(%i: index, %j: index, %p: index, %q: index) -> f32 {
  %seven = arith.constant 7 : index
  %ip = arith.muli %i, %p : index
  %jq = arith.muli %j, %q : index
  %sum = arith.addi %ip, %jq : index
  %rest = arith.remui %sum, %seven : index
  %int = arith.index_cast %rest : index to i32
  %value = arith.sitofp %int : i32 to f32
  return %value : f32
}

// The sum over j of m[row, j] * v[j].
func.func private @row_times(%m: memref<?x?xf32>, %row: index, %v: memref<?xf64>, %n: index) -> f64 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f64
  %sum = scf.for %j = %c0 to %n step %c1 iter_args(%acc = %zero) -> f64 {
    %element = memref.load %m[%row, %j] : memref<?x?xf32>
    %wide = arith.extf %element : f32 to f64
    %factor = memref.load %v[%j] : memref<?xf64>
    %product = arith.mulf %wide, %factor : f64
    %new = arith.addf %acc, %product : f64
    scf.yield %new : f64
  }
  return %sum : f64
}

// The number of rows in which C * v differs from A * (B * v), for v = 1, 2, 3, ...
// This check (Freivalds) costs n * n steps where a second multiplication would cost n * n * n.
func.func private @wrong_rows(%a: memref<?x?xf32>, %b: memref<?x?xf32>, %c: memref<?x?xf32>,
                              %n: index) -> i64 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %none = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %v = memref.alloc(%n) : memref<?xf64>
  %bv = memref.alloc(%n) : memref<?xf64>
  scf.for %j = %c0 to %n step %c1 {
    %next = arith.addi %j, %c1 : index
    %int = arith.index_cast %next : index to i64
    %float = arith.sitofp %int : i64 to f64
    memref.store %float, %v[%j] : memref<?xf64>
  }
  scf.for %k = %c0 to %n step %c1 {
    %sum = func.call @row_times(%b, %k, %v, %n) : (memref<?x?xf32>, index, memref<?xf64>, index) -> f64
    memref.store %sum, %bv[%k] : memref<?xf64>
  }
  %wrong = scf.for %i = %c0 to %n step %c1 iter_args(%count = %none) -> i64 {
    %got = func.call @row_times(%c, %i, %v, %n) : (memref<?x?xf32>, index, memref<?xf64>, index) -> f64
    %expected = func.call @row_times(%a, %i, %bv, %n) : (memref<?x?xf32>, index, memref<?xf64>, index) -> f64
    %same = arith.cmpf oeq, %got, %expected : f64
    %step = arith.select %same, %none, %one : i64
    %new = arith.addi %count, %step : i64
    scf.yield %new : i64
  }
  memref.dealloc %v : memref<?xf64>
  memref.dealloc %bv : memref<?xf64>
  return %wrong : i64
}

func.func private @multiply(%a: memref<?x?xf32>, %b: memref<?x?xf32>, %c: memref<?x?xf32>, %n: index) {
  %c1 = arith.constant 1 : index
  %tile = arith.constant 16 : index
  %tiles = arith.divui %n, %tile : index
  %da = gpu.alloc(%n, %n) : memref<?x?xf32>
  %db = gpu.alloc(%n, %n) : memref<?x?xf32>
  %dc = gpu.alloc(%n, %n) : memref<?x?xf32>
  gpu.memcpy %da, %a : memref<?x?xf32>, memref<?x?xf32>
  gpu.memcpy %db, %b : memref<?x?xf32>, memref<?x?xf32>
  gpu.launch_func @kernels::@matmul
      blocks in (%tiles, %tiles, %c1) threads in (%tile, %tile, %c1)
      args(%da : memref<?x?xf32>, %db : memref<?x?xf32>, %dc : memref<?x?xf32>, %n : index)
  gpu.memcpy %c, %dc : memref<?x?xf32>, memref<?x?xf32>
  gpu.dealloc %da : memref<?x?xf32>
  gpu.dealloc %db : memref<?x?xf32>
  gpu.dealloc %dc : memref<?x?xf32>
  return
}

// The number in argv[1] rounded up to whole tiles, or 128.
func.func private @size_argument(%argc: i32, %argv: !llvm.ptr) -> index {
  %one = arith.constant 1 : i32
  %default = arith.constant 128 : i64
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
  %tile = arith.constant 16 : index
  %tiles = arith.ceildivui %size, %tile : index
  %rounded = arith.muli %tiles, %tile : index
  return %rounded : index
}

func.func @main(%argc: i32, %argv: !llvm.ptr) -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %n = call @size_argument(%argc, %argv) : (i32, !llvm.ptr) -> index
  %a = memref.alloc(%n, %n) : memref<?x?xf32>
  %b = memref.alloc(%n, %n) : memref<?x?xf32>
  %c = memref.alloc(%n, %n) : memref<?x?xf32>
  scf.for %i = %c0 to %n step %c1 {
    scf.for %j = %c0 to %n step %c1 {
      %in_a = func.call @pattern(%i, %j, %c3, %c1) : (index, index, index, index) -> f32
      %in_b = func.call @pattern(%i, %j, %c1, %c2) : (index, index, index, index) -> f32
      memref.store %in_a, %a[%i, %j] : memref<?x?xf32>
      memref.store %in_b, %b[%i, %j] : memref<?x?xf32>
    }
  }
  call @multiply(%a, %b, %c, %n) : (memref<?x?xf32>, memref<?x?xf32>, memref<?x?xf32>, index) -> ()
  %wrong = call @wrong_rows(%a, %b, %c, %n)
      : (memref<?x?xf32>, memref<?x?xf32>, memref<?x?xf32>, index) -> i64
  memref.dealloc %a : memref<?x?xf32>
  memref.dealloc %b : memref<?x?xf32>
  memref.dealloc %c : memref<?x?xf32>

  %none = arith.constant 0 : i64
  %right = arith.cmpi eq, %wrong, %none : i64
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  %size = arith.index_cast %n : index to i64
  llvm.call @printf(%text, %size, %size, %wrong) vararg(!llvm.func<i32 (ptr, ...)>)
      : (!llvm.ptr, i64, i64, i64) -> i32
  %success = arith.constant 0 : i32
  %failure = arith.constant 1 : i32
  %status = arith.select %right, %success, %failure : i32
  return %status : i32
}

}
