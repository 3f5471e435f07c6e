// Kernels whose strips are as wide as their blocks suggest.
module attributes {gpu.container_module} {
  gpu.module @device {
    // A sum of 16 products of what the threads have in common.
    gpu.func @tile(%x: memref<?xi32>, %y: memref<?xi32>)
        workgroup(%s: memref<256xi32, #gpu.address_space<workgroup>>) kernel {
      %tx = gpu.thread_id x
      %ty = gpu.thread_id y
      %w = gpu.block_dim x
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c15 = arith.constant 15 : index
      %c16 = arith.constant 16 : index
      %zero = arith.constant 0 : i32
      %r = arith.muli %ty, %w : index
      %i = arith.addi %r, %tx : index
      %v = memref.load %x[%i] : memref<?xi32>
      memref.store %v, %s[%i] : memref<256xi32, #gpu.address_space<workgroup>>
      gpu.barrier
      %row0 = arith.andi %ty, %c15 : index
      %row = arith.muli %row0, %c16 : index
      %column = arith.andi %tx, %c15 : index
      %sum = scf.for %k = %c0 to %c16 step %c1 iter_args(%a = %zero) -> (i32) {
        %p = arith.addi %row, %k : index
        %q0 = arith.muli %k, %c16 : index
        %q = arith.addi %q0, %column : index
        %left = memref.load %s[%p] : memref<256xi32, #gpu.address_space<workgroup>>
        %right = memref.load %s[%q] : memref<256xi32, #gpu.address_space<workgroup>>
        %m = arith.muli %left, %right : i32
        %n = arith.addi %a, %m : i32
        scf.yield %n : i32
      }
      memref.store %sum, %y[%i] : memref<?xi32>
      gpu.return
    }

    gpu.func @histogram(%x: memref<?xi32>, %h: memref<?xi32>)
        workgroup(%s: memref<256xi32, #gpu.address_space<workgroup>>) kernel {
      %t = gpu.thread_id x
      %d = gpu.block_dim x
      %c0 = arith.constant 0 : index
      %c256 = arith.constant 256 : index
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      scf.for %j = %c0 to %c256 step %d {
        %i = arith.addi %j, %t : index
        %in = arith.cmpi ult, %i, %c256 : index
        scf.if %in {
          memref.store %zero, %s[%i] : memref<256xi32, #gpu.address_space<workgroup>>
        }
      }
      gpu.barrier
      %n = memref.dim %x, %c0 : memref<?xi32>
      scf.for %j = %c0 to %n step %d {
        %i = arith.addi %j, %t : index
        %v = memref.load %x[%i] : memref<?xi32>
        %k = arith.index_cast %v : i32 to index
        memref.atomic_rmw addi %one, %s[%k] : (i32, memref<256xi32, #gpu.address_space<workgroup>>) -> i32
      }
      gpu.barrier
      scf.for %j = %c0 to %c256 step %d {
        %i = arith.addi %j, %t : index
        %in = arith.cmpi ult, %i, %c256 : index
        scf.if %in {
          %c = memref.load %s[%i] : memref<256xi32, #gpu.address_space<workgroup>>
          memref.store %c, %h[%i] : memref<?xi32>
        }
      }
      gpu.return
    }
  }
}
