module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @saxpy(%n: index, %a: f32, %x: memref<?xf32>, %y: memref<?xf32>) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %m = arith.muli %b, %d : index
      %i = arith.addi %m, %t : index
      %c = arith.cmpi ult, %i, %n : index
      scf.if %c {
        %xv = memref.load %x[%i] : memref<?xf32>
        %e = math.exp %xv : f32
        %yv = memref.load %y[%i] : memref<?xf32>
        %p = arith.mulf %a, %e : f32
        %s = arith.addf %p, %yv : f32
        memref.store %s, %y[%i] : memref<?xf32>
      }
      gpu.return
    }
    gpu.func @other(%y: memref<?xf32>) kernel {
      %t = gpu.thread_id x
      %dyn = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
      %c0 = arith.constant 0 : index
      %v = memref.view %dyn[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to memref<64xf32, #gpu.address_space<workgroup>>
      %f = memref.load %y[%t] : memref<?xf32>
      memref.store %f, %v[%t] : memref<64xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %g = memref.load %v[%c0] : memref<64xf32, #gpu.address_space<workgroup>>
      memref.store %g, %y[%t] : memref<?xf32>
      gpu.return
    }
  }
  gpu.module @second {
    gpu.func @__mo_k2(%y: memref<?xf32>) kernel {
      %t = gpu.thread_id x
      %ti = arith.index_cast %t : index to i32
      %c5 = arith.constant 5 : i32
      %ok = arith.cmpi ne, %ti, %c5 : i32
      gpu.printf "hello %d\n", %ti : i32
      %c0 = arith.constant 1.0 : f32
      memref.store %c0, %y[%t] : memref<?xf32>
      gpu.return
    }
  }
  func.func @run(%n: index, %x: memref<?xf32>, %y: memref<?xf32>) {
    %c1 = arith.constant 1 : index
    %c0 = arith.constant 0 : index
    %c10 = arith.constant 10 : index
    %c64 = arith.constant 64 : index
    %s = arith.constant 256 : i32
    %a = arith.constant 2.0 : f32
    gpu.launch_func @kernels::@saxpy blocks in (%c10, %c1, %c1) threads in (%c64, %c1, %c1) args(%n : index, %a : f32, %x : memref<?xf32>, %y : memref<?xf32>)
    gpu.launch_func @kernels::@other blocks in (%c10, %c1, %c1) threads in (%c64, %c1, %c1) dynamic_shared_memory_size %s args(%y : memref<?xf32>)
    scf.for %i = %c0 to %c10 step %c1 {
      gpu.launch_func @second::@__mo_k2 blocks in (%c10, %c1, %c1) threads in (%c64, %c1, %c1) args(%y : memref<?xf32>)
    }
    return
  }
}
