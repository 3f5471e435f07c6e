// What `mlir-offload doctor` compiles: a kernel that needs the device library (exp), and one with
// workgroup memory and barriers. The program checks the result itself.

module attributes {gpu.container_module} {

llvm.func @puts(!llvm.ptr) -> i32
llvm.mlir.global internal constant @right("doctor: right\00")
llvm.mlir.global internal constant @wrong("doctor: WRONG\00")

gpu.module @doctor {
  gpu.func @decay(%x: memref<?xf32>) kernel {
    %i = gpu.thread_id x
    %value = memref.load %x[%i] : memref<?xf32>
    %minus = arith.negf %value : f32
    %decay = math.exp %minus : f32
    memref.store %decay, %x[%i] : memref<?xf32>
    gpu.return
  }

  // The sum of 256 values: halve the number of summands at each step.
  gpu.func @sum(%x: memref<?xf32>)
      workgroup(%shared: memref<256xf32, #gpu.address_space<workgroup>>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %half = arith.constant 128 : index
    %i = gpu.thread_id x
    %own = memref.load %x[%i] : memref<?xf32>
    memref.store %own, %shared[%i] : memref<256xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    scf.for %step = %c0 to %c8 step %c1 {
      %distance = arith.shrui %half, %step : index
      %active = arith.cmpi ult, %i, %distance : index
      scf.if %active {
        %partner = arith.addi %i, %distance : index
        %mine = memref.load %shared[%i] : memref<256xf32, #gpu.address_space<workgroup>>
        %other = memref.load %shared[%partner] : memref<256xf32, #gpu.address_space<workgroup>>
        %both = arith.addf %mine, %other : f32
        memref.store %both, %shared[%i] : memref<256xf32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
    }
    %is_first = arith.cmpi eq, %i, %c0 : index
    scf.if %is_first {
      %total = memref.load %shared[%c0] : memref<256xf32, #gpu.address_space<workgroup>>
      memref.store %total, %x[%c0] : memref<?xf32>
    }
    gpu.return
  }
}

func.func private @input(%i: index) -> f32 {
  %scale = arith.constant 0.00390625 : f32
  %int = arith.index_cast %i : index to i32
  %float = arith.sitofp %int : i32 to f32
  %value = arith.mulf %float, %scale : f32
  return %value : f32
}

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 256 : index
  %zero = arith.constant 0.0 : f32
  %x = memref.alloc(%n) : memref<?xf32>
  %expected = scf.for %i = %c0 to %n step %c1 iter_args(%total = %zero) -> f32 {
    %value = func.call @input(%i) : (index) -> f32
    memref.store %value, %x[%i] : memref<?xf32>
    %minus = arith.negf %value : f32
    %decay = math.exp %minus : f32
    %next = arith.addf %total, %decay : f32
    scf.yield %next : f32
  }
  %device = gpu.alloc(%n) : memref<?xf32>
  gpu.memcpy %device, %x : memref<?xf32>, memref<?xf32>
  gpu.launch_func @doctor::@decay blocks in (%c1, %c1, %c1) threads in (%n, %c1, %c1)
      args(%device : memref<?xf32>)
  gpu.launch_func @doctor::@sum blocks in (%c1, %c1, %c1) threads in (%n, %c1, %c1)
      args(%device : memref<?xf32>)
  gpu.memcpy %x, %device : memref<?xf32>, memref<?xf32>
  gpu.dealloc %device : memref<?xf32>
  %got = memref.load %x[%c0] : memref<?xf32>
  memref.dealloc %x : memref<?xf32>

  // The order of the additions differs. A NaN is not "less than": it is wrong, too.
  %difference = arith.subf %got, %expected : f32
  %distance = math.absf %difference : f32
  %tolerance = arith.constant 1.0e-02 : f32
  %is_right = arith.cmpf ole, %distance, %tolerance : f32
  %text_right = llvm.mlir.addressof @right : !llvm.ptr
  %text_wrong = llvm.mlir.addressof @wrong : !llvm.ptr
  %text = arith.select %is_right, %text_right, %text_wrong : !llvm.ptr
  llvm.call @puts(%text) : (!llvm.ptr) -> i32
  %success = arith.constant 0 : i32
  %failure = arith.constant 1 : i32
  %status = arith.select %is_right, %success, %failure : i32
  return %status : i32
}

}
