// Three kernels as users of the GPU dialect write them: a guard, tiles in shared memory, a tree.
module attributes {gpu.container_module} {
  gpu.module @bench {
    gpu.func @saxpy(%a: f32, %x: memref<?xf32>, %y: memref<?xf32>) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %o = arith.muli %b, %d : index
      %i = arith.addi %o, %t : index
      %c0 = arith.constant 0 : index
      %n = memref.dim %x, %c0 : memref<?xf32>
      %p = arith.cmpi ult, %i, %n : index
      scf.if %p {
        %vx = memref.load %x[%i] : memref<?xf32>
        %vy = memref.load %y[%i] : memref<?xf32>
        %m = arith.mulf %a, %vx : f32
        %s = arith.addf %m, %vy : f32
        memref.store %s, %y[%i] : memref<?xf32>
      }
      gpu.return
    }

    gpu.func @matmul(%A: memref<512x512xf32>, %B: memref<512x512xf32>, %C: memref<512x512xf32>)
        workgroup(%sa: memref<16x16xf32, #gpu.address_space<workgroup>>, %sb: memref<16x16xf32, #gpu.address_space<workgroup>>) kernel {
      %bx = gpu.block_id x
      %by = gpu.block_id y
      %tx = gpu.thread_id x
      %ty = gpu.thread_id y
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c16 = arith.constant 16 : index
      %c512 = arith.constant 512 : index
      %z = arith.constant 0.0 : f32
      %r0 = arith.muli %by, %c16 : index
      %row = arith.addi %r0, %ty : index
      %q0 = arith.muli %bx, %c16 : index
      %col = arith.addi %q0, %tx : index
      %acc = scf.for %k = %c0 to %c512 step %c16 iter_args(%s = %z) -> (f32) {
        %ka = arith.addi %k, %tx : index
        %kb = arith.addi %k, %ty : index
        %a = memref.load %A[%row, %ka] : memref<512x512xf32>
        %b = memref.load %B[%kb, %col] : memref<512x512xf32>
        memref.store %a, %sa[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
        memref.store %b, %sb[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
        gpu.barrier
        %t = scf.for %j = %c0 to %c16 step %c1 iter_args(%u = %s) -> (f32) {
          %va = memref.load %sa[%ty, %j] : memref<16x16xf32, #gpu.address_space<workgroup>>
          %vb = memref.load %sb[%j, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
          %m = arith.mulf %va, %vb : f32
          %w = arith.addf %u, %m : f32
          scf.yield %w : f32
        }
        gpu.barrier
        scf.yield %t : f32
      }
      memref.store %acc, %C[%row, %col] : memref<512x512xf32>
      gpu.return
    }
    gpu.func @reduce(%x: memref<?xf32>, %o: memref<?xf32>)
        workgroup(%sh: memref<256xf32, #gpu.address_space<workgroup>>) kernel {
      %t = gpu.thread_id x
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %n = memref.dim %x, %c0 : memref<?xf32>
      %o0 = arith.muli %b, %d : index
      %i = arith.addi %o0, %t : index
      %p = arith.cmpi ult, %i, %n : index
      %z = arith.constant 0.0 : f32
      %v = scf.if %p -> f32 {
        %l = memref.load %x[%i] : memref<?xf32>
        scf.yield %l : f32
      } else {
        scf.yield %z : f32
      }
      memref.store %v, %sh[%t] : memref<256xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %h = arith.divui %d, %c2 : index
      %last = scf.while (%s = %h) : (index) -> index {
        %c = arith.cmpi ugt, %s, %c0 : index
        scf.condition(%c) %s : index
      } do {
      ^bb0(%s: index):
        %a = arith.cmpi ult, %t, %s : index
        scf.if %a {
          %j = arith.addi %t, %s : index
          %v0 = memref.load %sh[%t] : memref<256xf32, #gpu.address_space<workgroup>>
          %v1 = memref.load %sh[%j] : memref<256xf32, #gpu.address_space<workgroup>>
          %w = arith.addf %v0, %v1 : f32
          memref.store %w, %sh[%t] : memref<256xf32, #gpu.address_space<workgroup>>
        }
        gpu.barrier
        %s2 = arith.divui %s, %c2 : index
        scf.yield %s2 : index
      }
      %f = arith.cmpi eq, %t, %c0 : index
      scf.if %f {
        %r = memref.load %sh[%c0] : memref<256xf32, #gpu.address_space<workgroup>>
        memref.store %r, %o[%b] : memref<?xf32>
      }
      gpu.return
    }
  }
}
