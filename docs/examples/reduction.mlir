// The sum of 262144 numbers, in three ways that GPU programs use.
//
// Shows: a tree in workgroup memory with barriers, shuffles within a subgroup (warp),
// and gpu.all_reduce with an atomic addition.
//
//   mlir-offload run reduction.mlir

module attributes {gpu.container_module} {

gpu.module @kernels {
  // The sum of every input that this thread is in charge of: i, i + threads, i + 2 * threads, ...
  func.func private @own_share(%data: memref<?xf32>) -> f32 {
    %zero = arith.constant 0.0 : f32
    %c0 = arith.constant 0 : index
    %n = memref.dim %data, %c0 : memref<?xf32>
    %tx = gpu.thread_id x
    %bx = gpu.block_id x
    %size = gpu.block_dim x
    %blocks = gpu.grid_dim x
    %start = arith.muli %bx, %size : index
    %first = arith.addi %start, %tx : index
    %threads = arith.muli %blocks, %size : index
    %sum = scf.for %i = %first to %n step %threads iter_args(%acc = %zero) -> f32 {
      %value = memref.load %data[%i] : memref<?xf32>
      %new = arith.addf %acc, %value : f32
      scf.yield %new : f32
    }
    return %sum : f32
  }

  // Halve the number of summands at each step, in workgroup memory: 256, 128, ... 1.
  gpu.func @tree(%data: memref<?xf32>, %result: memref<?xf32>)
      workgroup(%shared: memref<256xf32, #gpu.address_space<workgroup>>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %half = arith.constant 128 : index
    %tx = gpu.thread_id x
    %bx = gpu.block_id x
    %own = func.call @own_share(%data) : (memref<?xf32>) -> f32
    memref.store %own, %shared[%tx] : memref<256xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    scf.for %step = %c0 to %c8 step %c1 {
      %distance = arith.shrui %half, %step : index
      %active = arith.cmpi ult, %tx, %distance : index
      scf.if %active {
        %partner = arith.addi %tx, %distance : index
        %mine = memref.load %shared[%tx] : memref<256xf32, #gpu.address_space<workgroup>>
        %other = memref.load %shared[%partner] : memref<256xf32, #gpu.address_space<workgroup>>
        %both = arith.addf %mine, %other : f32
        memref.store %both, %shared[%tx] : memref<256xf32, #gpu.address_space<workgroup>>
      }
      // Outside of the condition: every thread of the block has to reach it.
      gpu.barrier
    }
    %is_first = arith.cmpi eq, %tx, %c0 : index
    scf.if %is_first {
      %sum = memref.load %shared[%c0] : memref<256xf32, #gpu.address_space<workgroup>>
      memref.store %sum, %result[%bx] : memref<?xf32>
    }
    gpu.return
  }

  // Exchange values within each subgroup of 32 without any memory, then across the subgroups.
  gpu.func @shuffles(%data: memref<?xf32>, %result: memref<?xf32>)
      workgroup(%shared: memref<8xf32, #gpu.address_space<workgroup>>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %width = arith.constant 32 : i32
    %lanes = arith.constant 32 : index
    %zero = arith.constant 0.0 : f32
    %d1 = arith.constant 1 : i32
    %d2 = arith.constant 2 : i32
    %d4 = arith.constant 4 : i32
    %d8 = arith.constant 8 : i32
    %d16 = arith.constant 16 : i32
    %tx = gpu.thread_id x
    %bx = gpu.block_id x
    %own = func.call @own_share(%data) : (memref<?xf32>) -> f32
    %o1, %v1 = gpu.shuffle xor %own, %d1, %width : f32
    %s1 = arith.addf %own, %o1 : f32
    %o2, %v2 = gpu.shuffle xor %s1, %d2, %width : f32
    %s2 = arith.addf %s1, %o2 : f32
    %o4, %v4 = gpu.shuffle xor %s2, %d4, %width : f32
    %s4 = arith.addf %s2, %o4 : f32
    %o8, %v8 = gpu.shuffle xor %s4, %d8, %width : f32
    %s8 = arith.addf %s4, %o8 : f32
    %o16, %v16 = gpu.shuffle xor %s8, %d16, %width : f32
    %s16 = arith.addf %s8, %o16 : f32

    // Now every lane has the sum of its subgroup; lane 0 hands it over.
    %lane = arith.remui %tx, %lanes : index
    %subgroup = arith.divui %tx, %lanes : index
    %is_lane0 = arith.cmpi eq, %lane, %c0 : index
    scf.if %is_lane0 {
      memref.store %s16, %shared[%subgroup] : memref<8xf32, #gpu.address_space<workgroup>>
    }
    gpu.barrier
    %is_first = arith.cmpi eq, %tx, %c0 : index
    scf.if %is_first {
      %sum = scf.for %i = %c0 to %c8 step %c1 iter_args(%acc = %zero) -> f32 {
        %value = memref.load %shared[%i] : memref<8xf32, #gpu.address_space<workgroup>>
        %new = arith.addf %acc, %value : f32
        scf.yield %new : f32
      }
      memref.store %sum, %result[%bx] : memref<?xf32>
    }
    gpu.return
  }

  // Let the compiler write the block's reduction; blocks meet in one atomic addition each.
  gpu.func @all_reduce(%data: memref<?xf32>, %result: memref<?xf32>) kernel {
    %c0 = arith.constant 0 : index
    %tx = gpu.thread_id x
    %own = func.call @own_share(%data) : (memref<?xf32>) -> f32
    %sum = gpu.all_reduce add %own uniform {} : (f32) -> f32
    %is_first = arith.cmpi eq, %tx, %c0 : index
    scf.if %is_first {
      %before = memref.atomic_rmw addf %sum, %result[%c0] : (f32, memref<?xf32>) -> f32
    }
    gpu.return
  }
}

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @line("reduction by %s: %s, sum %.0f, expected %.0f\0A\00")
llvm.mlir.global internal constant @ok("ok\00")
llvm.mlir.global internal constant @bad("WRONG\00")
llvm.mlir.global internal constant @tree("tree\00")
llvm.mlir.global internal constant @shuffles("shuffles\00")
llvm.mlir.global internal constant @all_reduce("all_reduce\00")

// Add up the partial sums, print one line, and give 0 if the sum is right, else 1.
func.func private @report(%name: !llvm.ptr, %partial: memref<?xf32>, %expected: f64) -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f64
  %blocks = memref.dim %partial, %c0 : memref<?xf32>
  %sum = scf.for %i = %c0 to %blocks step %c1 iter_args(%acc = %zero) -> f64 {
    %value = memref.load %partial[%i] : memref<?xf32>
    %wide = arith.extf %value : f32 to f64
    %new = arith.addf %acc, %wide : f64
    scf.yield %new : f64
  }
  %right = arith.cmpf oeq, %sum, %expected : f64
  %text = llvm.mlir.addressof @line : !llvm.ptr
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %verdict = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  llvm.call @printf(%text, %name, %verdict, %sum, %expected) vararg(!llvm.func<i32 (ptr, ...)>)
      : (!llvm.ptr, !llvm.ptr, !llvm.ptr, f64, f64) -> i32
  %success = arith.constant 0 : i32
  %failure = arith.constant 1 : i32
  %status = arith.select %right, %success, %failure : i32
  return %status : i32
}

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c13 = arith.constant 13 : index
  %n = arith.constant 262144 : index
  %blocks = arith.constant 64 : index
  %threads = arith.constant 256 : index
  %zero = arith.constant 0.0 : f32
  %zero64 = arith.constant 0.0 : f64

  // 0, 1, ... 12, 0, 1, ...: all sums are exact in f32, so that their order does not matter.
  %data = memref.alloc(%n) : memref<?xf32>
  %partial = memref.alloc(%blocks) : memref<?xf32>
  %expected = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero64) -> f64 {
    %rest = arith.remui %i, %c13 : index
    %int = arith.index_cast %rest : index to i32
    %value = arith.sitofp %int : i32 to f32
    memref.store %value, %data[%i] : memref<?xf32>
    %wide = arith.extf %value : f32 to f64
    %new = arith.addf %acc, %wide : f64
    scf.yield %new : f64
  }

  %ddata = gpu.alloc(%n) : memref<?xf32>
  %dpartial = gpu.alloc(%blocks) : memref<?xf32>
  gpu.memcpy %ddata, %data : memref<?xf32>, memref<?xf32>

  gpu.launch_func @kernels::@tree blocks in (%blocks, %c1, %c1) threads in (%threads, %c1, %c1)
      args(%ddata : memref<?xf32>, %dpartial : memref<?xf32>)
  gpu.memcpy %partial, %dpartial : memref<?xf32>, memref<?xf32>
  %name1 = llvm.mlir.addressof @tree : !llvm.ptr
  %status1 = call @report(%name1, %partial, %expected) : (!llvm.ptr, memref<?xf32>, f64) -> i32

  gpu.launch_func @kernels::@shuffles blocks in (%blocks, %c1, %c1) threads in (%threads, %c1, %c1)
      args(%ddata : memref<?xf32>, %dpartial : memref<?xf32>)
  gpu.memcpy %partial, %dpartial : memref<?xf32>, memref<?xf32>
  %name2 = llvm.mlir.addressof @shuffles : !llvm.ptr
  %status2 = call @report(%name2, %partial, %expected) : (!llvm.ptr, memref<?xf32>, f64) -> i32

  // The atomic additions start from zero.
  gpu.memset %dpartial, %zero : memref<?xf32>, f32
  gpu.launch_func @kernels::@all_reduce blocks in (%blocks, %c1, %c1) threads in (%threads, %c1, %c1)
      args(%ddata : memref<?xf32>, %dpartial : memref<?xf32>)
  gpu.memcpy %partial, %dpartial : memref<?xf32>, memref<?xf32>
  %name3 = llvm.mlir.addressof @all_reduce : !llvm.ptr
  %status3 = call @report(%name3, %partial, %expected) : (!llvm.ptr, memref<?xf32>, f64) -> i32

  gpu.dealloc %ddata : memref<?xf32>
  gpu.dealloc %dpartial : memref<?xf32>
  memref.dealloc %data : memref<?xf32>
  memref.dealloc %partial : memref<?xf32>
  %status12 = arith.ori %status1, %status2 : i32
  %status = arith.ori %status12, %status3 : i32
  return %status : i32
}

}
