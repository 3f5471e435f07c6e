// What differs between GPUs and SPIR-V: each kernel writes what its threads computed, main prints it.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    memref.global "private" constant @table : memref<4xf32> = dense<[1.0, 2.0, 4.0, 8.0]>

    // A function with a barrier, of memory that may lie anywhere.
    func.func private @exchange(%buffer: memref<64xf32, #gpu.address_space<workgroup>>, %i: index) -> f32 {
      %last = arith.constant 63 : index
      %j = arith.subi %last, %i : index
      gpu.barrier
      %v = memref.load %buffer[%j] : memref<64xf32, #gpu.address_space<workgroup>>
      return %v : f32
    }

    gpu.func @memory(%out: memref<?xf32>, %doubled: i1)
        workgroup(%shared: memref<64xf32, #gpu.address_space<workgroup>>)
        private(%own: memref<2xf32, #gpu.address_space<private>>) kernel {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c4 = arith.constant 4 : index
      %i = gpu.thread_id x
      %n = arith.index_cast %i : index to i32
      %f = arith.sitofp %n : i32 to f32
      memref.store %f, %shared[%i] : memref<64xf32, #gpu.address_space<workgroup>>
      %other = func.call @exchange(%shared, %i) : (memref<64xf32, #gpu.address_space<workgroup>>, index) -> f32
      %k = arith.remui %i, %c4 : index
      %t = memref.get_global @table : memref<4xf32>
      %w = memref.load %t[%k] : memref<4xf32>
      memref.store %other, %own[%c0] : memref<2xf32, #gpu.address_space<private>>
      memref.store %w, %own[%c1] : memref<2xf32, #gpu.address_space<private>>
      %stack = memref.alloca() : memref<4xf32>
      scf.for %j = %c0 to %c4 step %c1 {
        %e = memref.load %own[%c1] : memref<2xf32, #gpu.address_space<private>>
        memref.store %e, %stack[%j] : memref<4xf32>
      }
      %a = memref.load %own[%c0] : memref<2xf32, #gpu.address_space<private>>
      %b = memref.load %stack[%k] : memref<4xf32>
      %product = arith.mulf %a, %b : f32
      %twice = arith.addf %product, %product : f32
      %chosen = arith.select %doubled, %twice, %product : f32
      memref.store %chosen, %out[%i] : memref<?xf32>
      gpu.return
    }

    gpu.func @atomics(%out: memref<?xf32>, %counts: memref<?xi32>)
        workgroup(%sum: memref<1xf32, #gpu.address_space<workgroup>>) kernel {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %one = arith.constant 1 : i32
      %zero = arith.constant 0.0 : f32
      %i = gpu.thread_id x
      %n = arith.index_cast %i : index to i32
      %f = arith.sitofp %n : i32 to f32
      %first = arith.cmpi eq, %i, %c0 : index
      scf.if %first {
        memref.store %zero, %sum[%c0] : memref<1xf32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      %r0 = memref.atomic_rmw addf %f, %sum[%c0] : (f32, memref<1xf32, #gpu.address_space<workgroup>>) -> f32
      %r1 = memref.atomic_rmw addf %f, %out[%c1] : (f32, memref<?xf32>) -> f32
      %r2 = memref.atomic_rmw maximumf %f, %out[%c2] : (f32, memref<?xf32>) -> f32
      %r3 = memref.atomic_rmw addi %one, %counts[%c0] : (i32, memref<?xi32>) -> i32
      gpu.barrier
      scf.if %first {
        %s = memref.load %sum[%c0] : memref<1xf32, #gpu.address_space<workgroup>>
        memref.store %s, %out[%c0] : memref<?xf32>
      }
      gpu.return
    }

    // bf16 is computed as f32; a NaN is not lost; vectors; functions of libdevice; f16.
    gpu.func @numbers(%out: memref<?xf32>, %half: f16) kernel {
      %i = gpu.thread_id x
      %n = arith.index_cast %i : index to i32
      %f = arith.sitofp %n : i32 to f32
      %small = arith.truncf %f : f32 to bf16
      %third = arith.constant 0.333 : bf16
      %b = arith.mulf %small, %third : bf16
      %x = arith.extf %b : bf16 to f32
      %nan = arith.divf %f, %f : f32
      %m = arith.maximumf %nan, %f : f32
      %wide = vector.broadcast %f : f32 to vector<4xf32>
      %sq = arith.mulf %wide, %wide : vector<4xf32>
      %v = vector.reduction <add>, %sq : vector<4xf32> into f32
      %e = math.exp %x : f32
      %p = math.powf %e, %x : f32
      %h = arith.extf %half : f16 to f32
      %s0 = arith.addf %x, %m : f32
      %s1 = arith.addf %s0, %v : f32
      %s2 = arith.addf %s1, %h : f32
      %isnan = arith.cmpf uno, %m, %m : f32
      %minus = arith.constant -1.0 : f32
      %r = arith.select %isnan, %minus, %s2 : f32
      %q = math.sqrt %p : f32
      %small_q = arith.minimumf %q, %h : f32
      %t = arith.addf %r, %small_q : f32
      memref.store %t, %out[%i] : memref<?xf32>
      gpu.return
    }

    // Subgroups of 32 threads in a block of two dimensions, numbered along x first.
    gpu.func @lanes(%out: memref<?xf32>) kernel {
      %w = arith.constant 32 : index
      %x = gpu.thread_id x
      %y = gpu.thread_id y
      %row = arith.muli %y, %w : index
      %i = arith.addi %row, %x : index
      %lane = gpu.lane_id
      %n = arith.index_cast %lane : index to i32
      %f = arith.sitofp %n : i32 to f32
      %sum = gpu.subgroup_reduce add %f : (f32) -> f32
      %id = gpu.subgroup_id : index
      %k = arith.index_cast %id : index to i32
      %g = arith.sitofp %k : i32 to f32
      %hundred = arith.constant 1000.0 : f32
      %scaled = arith.mulf %g, %hundred : f32
      %all = arith.addf %sum, %scaled : f32
      %r = arith.addf %all, %f : f32
      memref.store %r, %out[%i] : memref<?xf32>
      gpu.return
    }
  }

  llvm.func @printf(!llvm.ptr, ...) -> i32
  llvm.mlir.global internal constant @format("%g\0A\00")

  func.func @show(%values: memref<?xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant 0.0 : f32
    %format = llvm.mlir.addressof @format : !llvm.ptr
    scf.for %i = %c0 to %c64 step %c1 {
      %v = memref.load %values[%i] : memref<?xf32>
      %d = arith.extf %v : f32 to f64
      %n = llvm.call @printf(%format, %d) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, f64) -> i32
      memref.store %zero, %values[%i] : memref<?xf32>
    }
    return
  }

  // With an argument the block is 2 x 32 instead of 32 x 2.
  func.func @main(%argc: i32, %argv: !llvm.ptr) -> i32 {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %i0 = arith.constant 0 : i32
    %true = arith.constant true
    %half = arith.constant 1.5 : f16
    %i1 = arith.constant 1 : i32
    %is_high = arith.cmpi sgt, %argc, %i1 : i32
    %width = arith.select %is_high, %c2, %c32 : index
    %height = arith.select %is_high, %c32, %c2 : index
    %values = gpu.alloc host_shared (%c64) : memref<?xf32>
    %counts = gpu.alloc host_shared (%c1) : memref<?xi32>
    memref.store %i0, %counts[%c0] : memref<?xi32>
    gpu.launch_func @kernels::@memory blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1)
        args(%values : memref<?xf32>, %true : i1)
    func.call @show(%values) : (memref<?xf32>) -> ()
    gpu.launch_func @kernels::@atomics blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1)
        args(%values : memref<?xf32>, %counts : memref<?xi32>)
    func.call @show(%values) : (memref<?xf32>) -> ()
    gpu.launch_func @kernels::@numbers blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1)
        args(%values : memref<?xf32>, %half : f16)
    func.call @show(%values) : (memref<?xf32>) -> ()
    gpu.launch_func @kernels::@lanes blocks in (%c1, %c1, %c1) threads in (%width, %height, %c1)
        args(%values : memref<?xf32>)
    func.call @show(%values) : (memref<?xf32>) -> ()
    %count = memref.load %counts[%c0] : memref<?xi32>
    return %count : i32
  }
}
