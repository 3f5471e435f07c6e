// Reverse each block of a vector; how long a block is, is known at run time only.
//
// Shows: workgroup memory whose size is chosen at the launch (dynamic_shared_memory_size),
// next to workgroup memory of a fixed size, and two arrays laid out in it by memref.view.
//
//   mlir-offload run dynamic_shared.mlir

module attributes {gpu.container_module} {

gpu.module @kernels {
  // out[i] = value of the mirror thread + 1000 * its id + the block's own number
  gpu.func @reverse(%in: memref<?xf32>, %out: memref<?xf32>)
      workgroup(%number: memref<1xf32, #gpu.address_space<workgroup>>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %thousand = arith.constant 1000.0 : f32
    %tx = gpu.thread_id x
    %bx = gpu.block_id x
    %size = gpu.block_dim x
    %start = arith.muli %bx, %size : index
    %i = arith.addi %start, %tx : index

    // The launch gave 8 bytes per thread: first all the values, behind them all the thread ids.
    %ids_at = arith.muli %size, %c4 : index
    %bytes = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %values = memref.view %bytes[%c0][%size]
        : memref<?xi8, #gpu.address_space<workgroup>> to memref<?xf32, #gpu.address_space<workgroup>>
    %ids = memref.view %bytes[%ids_at][%size]
        : memref<?xi8, #gpu.address_space<workgroup>> to memref<?xi32, #gpu.address_space<workgroup>>

    %is_first = arith.cmpi eq, %tx, %c0 : index
    scf.if %is_first {
      %block = arith.index_cast %bx : index to i32
      %block_float = arith.sitofp %block : i32 to f32
      memref.store %block_float, %number[%c0] : memref<1xf32, #gpu.address_space<workgroup>>
    }
    %value = memref.load %in[%i] : memref<?xf32>
    %id = arith.index_cast %tx : index to i32
    memref.store %value, %values[%tx] : memref<?xf32, #gpu.address_space<workgroup>>
    memref.store %id, %ids[%tx] : memref<?xi32, #gpu.address_space<workgroup>>
    gpu.barrier

    %last = arith.subi %size, %c1 : index
    %mirror = arith.subi %last, %tx : index
    %got = memref.load %values[%mirror] : memref<?xf32, #gpu.address_space<workgroup>>
    %got_id = memref.load %ids[%mirror] : memref<?xi32, #gpu.address_space<workgroup>>
    %got_number = memref.load %number[%c0] : memref<1xf32, #gpu.address_space<workgroup>>
    %id_float = arith.sitofp %got_id : i32 to f32
    %id_part = arith.mulf %id_float, %thousand : f32
    %sum = arith.addf %got, %id_part : f32
    %result = arith.addf %sum, %got_number : f32
    memref.store %result, %out[%i] : memref<?xf32>
    gpu.return
  }
}

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @ok("dynamic_shared: ok, %d blocks of %d\0A\00")
llvm.mlir.global internal constant @bad("dynamic_shared: WRONG, %d blocks of %d, %d elements differ\0A\00")

// Run with `blocks` blocks of `size` threads; give 0 if all is right, else 1.
func.func private @run(%blocks: index, %size: index) -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %bytes_per_thread = arith.constant 8 : i32
  %thousand = arith.constant 1000 : index
  %n = arith.muli %blocks, %size : index
  %data = memref.alloc(%n) : memref<?xf32>
  scf.for %i = %c0 to %n step %c1 {
    %int = arith.index_cast %i : index to i32
    %value = arith.sitofp %int : i32 to f32
    memref.store %value, %data[%i] : memref<?xf32>
  }

  %in = gpu.alloc(%n) : memref<?xf32>
  %out = gpu.alloc(%n) : memref<?xf32>
  gpu.memcpy %in, %data : memref<?xf32>, memref<?xf32>
  %threads = arith.index_cast %size : index to i32
  %bytes = arith.muli %threads, %bytes_per_thread : i32
  gpu.launch_func @kernels::@reverse blocks in (%blocks, %c1, %c1) threads in (%size, %c1, %c1)
      dynamic_shared_memory_size %bytes args(%in : memref<?xf32>, %out : memref<?xf32>)
  gpu.memcpy %data, %out : memref<?xf32>, memref<?xf32>
  gpu.dealloc %in : memref<?xf32>
  gpu.dealloc %out : memref<?xf32>

  %last = arith.subi %size, %c1 : index
  %wrong = scf.for %i = %c0 to %n step %c1 iter_args(%count = %zero) -> i32 {
    %block = arith.divui %i, %size : index
    %thread = arith.remui %i, %size : index
    %mirror = arith.subi %last, %thread : index
    %start = arith.muli %block, %size : index
    %from = arith.addi %start, %mirror : index
    %id_part = arith.muli %mirror, %thousand : index
    %sum = arith.addi %from, %id_part : index
    %whole = arith.addi %sum, %block : index
    %int = arith.index_cast %whole : index to i32
    %expected = arith.sitofp %int : i32 to f32
    %got = memref.load %data[%i] : memref<?xf32>
    %same = arith.cmpf oeq, %got, %expected : f32
    %step = arith.select %same, %zero, %one : i32
    %new = arith.addi %count, %step : i32
    scf.yield %new : i32
  }
  memref.dealloc %data : memref<?xf32>

  %right = arith.cmpi eq, %wrong, %zero : i32
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  %blocks32 = arith.index_cast %blocks : index to i32
  llvm.call @printf(%text, %blocks32, %threads, %wrong) vararg(!llvm.func<i32 (ptr, ...)>)
      : (!llvm.ptr, i32, i32, i32) -> i32
  %status = arith.select %right, %zero, %one : i32
  return %status : i32
}

func.func @main() -> i32 {
  %c3 = arith.constant 3 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  // 512 bytes of dynamic workgroup memory per block, then 8192.
  %small = call @run(%c1024, %c64) : (index, index) -> i32
  %large = call @run(%c3, %c1024) : (index, index) -> i32
  %status = arith.ori %small, %large : i32
  return %status : i32
}

}
