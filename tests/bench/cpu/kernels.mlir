// Kernels as users of the GPU dialect write them.
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

    gpu.func @transpose(%x: memref<1024x1024xf32>, %y: memref<1024x1024xf32>)
        workgroup(%tile: memref<32x33xf32, #gpu.address_space<workgroup>>) kernel {
      %bx = gpu.block_id x
      %by = gpu.block_id y
      %tx = gpu.thread_id x
      %ty = gpu.thread_id y
      %c32 = arith.constant 32 : index
      %r0 = arith.muli %by, %c32 : index
      %q0 = arith.muli %bx, %c32 : index
      %row = arith.addi %r0, %ty : index
      %col = arith.addi %q0, %tx : index
      %v = memref.load %x[%row, %col] : memref<1024x1024xf32>
      memref.store %v, %tile[%ty, %tx] : memref<32x33xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %orow = arith.addi %q0, %ty : index
      %ocol = arith.addi %r0, %tx : index
      %w = memref.load %tile[%tx, %ty] : memref<32x33xf32, #gpu.address_space<workgroup>>
      memref.store %w, %y[%orow, %ocol] : memref<1024x1024xf32>
      gpu.return
    }

    // One subgroup for a row of 1024.
    gpu.func @softmax(%x: memref<?xf32>, %y: memref<?xf32>) kernel {
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %c0 = arith.constant 0 : index
      %c32 = arith.constant 32 : index
      %c1024 = arith.constant 1024 : index
      %w = arith.constant 32 : i32
      %i16 = arith.constant 16 : i32
      %i8 = arith.constant 8 : i32
      %i4 = arith.constant 4 : i32
      %i2 = arith.constant 2 : i32
      %i1 = arith.constant 1 : i32
      %low = arith.constant -1.0e30 : f32
      %zero = arith.constant 0.0 : f32
      %one = arith.constant 1.0 : f32
      %base0 = arith.muli %b, %c1024 : index
      %base = arith.addi %base0, %t : index
      %m0 = scf.for %j = %c0 to %c1024 step %c32 iter_args(%m = %low) -> (f32) {
        %i = arith.addi %base, %j : index
        %v = memref.load %x[%i] : memref<?xf32>
        %n = arith.maxnumf %m, %v : f32
        scf.yield %n : f32
      }
      %s1, %p1 = gpu.shuffle xor %m0, %i16, %w : f32
      %m1 = arith.maxnumf %m0, %s1 : f32
      %s2, %p2 = gpu.shuffle xor %m1, %i8, %w : f32
      %m2 = arith.maxnumf %m1, %s2 : f32
      %s3, %p3 = gpu.shuffle xor %m2, %i4, %w : f32
      %m3 = arith.maxnumf %m2, %s3 : f32
      %s4, %p4 = gpu.shuffle xor %m3, %i2, %w : f32
      %m4 = arith.maxnumf %m3, %s4 : f32
      %s5, %p5 = gpu.shuffle xor %m4, %i1, %w : f32
      %m5 = arith.maxnumf %m4, %s5 : f32
      %a0 = scf.for %j = %c0 to %c1024 step %c32 iter_args(%s = %zero) -> (f32) {
        %i = arith.addi %base, %j : index
        %v = memref.load %x[%i] : memref<?xf32>
        %d = arith.subf %v, %m5 : f32
        %e = math.exp %d : f32
        memref.store %e, %y[%i] : memref<?xf32>
        %n = arith.addf %s, %e : f32
        scf.yield %n : f32
      }
      %t1, %q1 = gpu.shuffle xor %a0, %i16, %w : f32
      %a1 = arith.addf %a0, %t1 : f32
      %t2, %q2 = gpu.shuffle xor %a1, %i8, %w : f32
      %a2 = arith.addf %a1, %t2 : f32
      %t3, %q3 = gpu.shuffle xor %a2, %i4, %w : f32
      %a3 = arith.addf %a2, %t3 : f32
      %t4, %q4 = gpu.shuffle xor %a3, %i2, %w : f32
      %a4 = arith.addf %a3, %t4 : f32
      %t5, %q5 = gpu.shuffle xor %a4, %i1, %w : f32
      %a5 = arith.addf %a4, %t5 : f32
      %r = arith.divf %one, %a5 : f32
      scf.for %j = %c0 to %c1024 step %c32 {
        %i = arith.addi %base, %j : index
        %v = memref.load %y[%i] : memref<?xf32>
        %d = arith.mulf %v, %r : f32
        memref.store %d, %y[%i] : memref<?xf32>
      }
      gpu.return
    }

    // A block of 256 threads for a row of 1024.
    gpu.func @layernorm(%x: memref<?xf32>, %y: memref<?xf32>) kernel {
      %b = gpu.block_id x
      %t = gpu.thread_id x
      %c0 = arith.constant 0 : index
      %c256 = arith.constant 256 : index
      %c1024 = arith.constant 1024 : index
      %zero = arith.constant 0.0 : f32
      %n = arith.constant 1024.0 : f32
      %eps = arith.constant 1.0e-5 : f32
      %base0 = arith.muli %b, %c1024 : index
      %base = arith.addi %base0, %t : index
      %s = scf.for %j = %c0 to %c1024 step %c256 iter_args(%a = %zero) -> (f32) {
        %i = arith.addi %base, %j : index
        %v = memref.load %x[%i] : memref<?xf32>
        %w = arith.addf %a, %v : f32
        scf.yield %w : f32
      }
      %sum = gpu.all_reduce add %s {} : (f32) -> f32
      %mean = arith.divf %sum, %n : f32
      %q = scf.for %j = %c0 to %c1024 step %c256 iter_args(%a = %zero) -> (f32) {
        %i = arith.addi %base, %j : index
        %v = memref.load %x[%i] : memref<?xf32>
        %d = arith.subf %v, %mean : f32
        %e = arith.mulf %d, %d : f32
        %w = arith.addf %a, %e : f32
        scf.yield %w : f32
      }
      %squares = gpu.all_reduce add %q {} : (f32) -> f32
      %variance = arith.divf %squares, %n : f32
      %safe = arith.addf %variance, %eps : f32
      %scale = math.rsqrt %safe : f32
      scf.for %j = %c0 to %c1024 step %c256 {
        %i = arith.addi %base, %j : index
        %v = memref.load %x[%i] : memref<?xf32>
        %d = arith.subf %v, %mean : f32
        %w = arith.mulf %d, %scale : f32
        memref.store %w, %y[%i] : memref<?xf32>
      }
      gpu.return
    }

    gpu.func @stencil(%x: memref<1024x1024xf32>, %y: memref<1024x1024xf32>) kernel {
      %bx = gpu.block_id x
      %by = gpu.block_id y
      %dx = gpu.block_dim x
      %dy = gpu.block_dim y
      %tx = gpu.thread_id x
      %ty = gpu.thread_id y
      %c1 = arith.constant 1 : index
      %last = arith.constant 1022 : index
      %quarter = arith.constant 0.25 : f32
      %q0 = arith.muli %bx, %dx : index
      %r0 = arith.muli %by, %dy : index
      %c = arith.addi %q0, %tx : index
      %r = arith.addi %r0, %ty : index
      %cm = arith.subi %c, %c1 : index
      %rm = arith.subi %r, %c1 : index
      %cin = arith.cmpi ult, %cm, %last : index
      %rin = arith.cmpi ult, %rm, %last : index
      %in = arith.andi %cin, %rin : i1
      scf.if %in {
        %cp = arith.addi %c, %c1 : index
        %rp = arith.addi %r, %c1 : index
        %v0 = memref.load %x[%r, %c] : memref<1024x1024xf32>
        %v1 = memref.load %x[%r, %cm] : memref<1024x1024xf32>
        %v2 = memref.load %x[%r, %cp] : memref<1024x1024xf32>
        %v3 = memref.load %x[%rm, %c] : memref<1024x1024xf32>
        %v4 = memref.load %x[%rp, %c] : memref<1024x1024xf32>
        %s1 = arith.addf %v1, %v2 : f32
        %s2 = arith.addf %v3, %v4 : f32
        %s3 = arith.addf %s1, %s2 : f32
        %s4 = arith.mulf %s3, %quarter : f32
        %s5 = arith.subf %s4, %v0 : f32
        memref.store %s5, %y[%r, %c] : memref<1024x1024xf32>
      }
      gpu.return
    }

    // Inclusive, of each block, after Hillis and Steele.
    gpu.func @scan(%x: memref<?xf32>, %y: memref<?xf32>)
        workgroup(%s: memref<256xf32, #gpu.address_space<workgroup>>) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %c1 = arith.constant 1 : index
      %o = arith.muli %b, %d : index
      %i = arith.addi %o, %t : index
      %v = memref.load %x[%i] : memref<?xf32>
      memref.store %v, %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %z:2 = scf.while (%k = %c1, %sum = %v) : (index, f32) -> (index, f32) {
        %more = arith.cmpi ult, %k, %d : index
        scf.condition(%more) %k, %sum : index, f32
      } do {
      ^bb0(%k: index, %sum: f32):
        %in = arith.cmpi uge, %t, %k : index
        %next = scf.if %in -> (f32) {
          %j = arith.subi %t, %k : index
          %w = memref.load %s[%j] : memref<256xf32, #gpu.address_space<workgroup>>
          %n = arith.addf %sum, %w : f32
          scf.yield %n : f32
        } else {
          scf.yield %sum : f32
        }
        gpu.barrier
        memref.store %next, %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
        gpu.barrier
        %k2 = arith.addi %k, %k : index
        scf.yield %k2, %next : index, f32
      }
      memref.store %z#1, %y[%i] : memref<?xf32>
      gpu.return
    }

    gpu.func @blackscholes(%x: memref<?xf32>, %y: memref<?xf32>) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %c0 = arith.constant 0 : index
      %o = arith.muli %b, %d : index
      %i = arith.addi %o, %t : index
      %n = memref.dim %x, %c0 : memref<?xf32>
      %in = arith.cmpi ult, %i, %n : index
      %vol = arith.constant 0.3 : f32
      %rate = arith.constant -0.05 : f32
      scf.if %in {
        %v = memref.load %x[%i] : memref<?xf32>
        %l = math.log %v : f32
        %d1 = arith.divf %l, %vol : f32
        %d2 = arith.subf %d1, %vol : f32
        %e1 = math.erf %d1 : f32
        %e2 = math.erf %d2 : f32
        %ex = math.exp %rate : f32
        %p1 = arith.mulf %v, %e1 : f32
        %p2 = arith.mulf %ex, %e2 : f32
        %r = arith.subf %p1, %p2 : f32
        memref.store %r, %y[%i] : memref<?xf32>
      }
      gpu.return
    }

    gpu.func @histogram(%x: memref<?xi32>, %h: memref<?xi32>)
        workgroup(%s: memref<256xi32, #gpu.address_space<workgroup>>) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %g = gpu.grid_dim x
      %t = gpu.thread_id x
      %c0 = arith.constant 0 : index
      %zero = arith.constant 0 : i32
      %one = arith.constant 1 : i32
      memref.store %zero, %s[%t] : memref<256xi32, #gpu.address_space<workgroup>>
      gpu.barrier
      %n = memref.dim %x, %c0 : memref<?xi32>
      %o = arith.muli %b, %d : index
      %stride = arith.muli %g, %d : index
      scf.for %j = %o to %n step %stride {
        %i = arith.addi %j, %t : index
        %v = memref.load %x[%i] : memref<?xi32>
        %k = arith.index_cast %v : i32 to index
        memref.atomic_rmw addi %one, %s[%k] : (i32, memref<256xi32, #gpu.address_space<workgroup>>) -> i32
      }
      gpu.barrier
      %c = memref.load %s[%t] : memref<256xi32, #gpu.address_space<workgroup>>
      memref.atomic_rmw addi %c, %h[%t] : (i32, memref<?xi32>) -> i32
      gpu.return
    }

    gpu.func @nbody(%x: memref<?xf32>, %y: memref<?xf32>, %z: memref<?xf32>, %a: memref<?xf32>) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %zero = arith.constant 0.0 : f32
      %soft = arith.constant 0.01 : f32
      %o = arith.muli %b, %d : index
      %i = arith.addi %o, %t : index
      %n = memref.dim %x, %c0 : memref<?xf32>
      %xi = memref.load %x[%i] : memref<?xf32>
      %yi = memref.load %y[%i] : memref<?xf32>
      %zi = memref.load %z[%i] : memref<?xf32>
      %sum = scf.for %j = %c0 to %n step %c1 iter_args(%s = %zero) -> (f32) {
        %xj = memref.load %x[%j] : memref<?xf32>
        %yj = memref.load %y[%j] : memref<?xf32>
        %zj = memref.load %z[%j] : memref<?xf32>
        %dx = arith.subf %xj, %xi : f32
        %dy = arith.subf %yj, %yi : f32
        %dz = arith.subf %zj, %zi : f32
        %xx = arith.mulf %dx, %dx : f32
        %yy = arith.mulf %dy, %dy : f32
        %zz = arith.mulf %dz, %dz : f32
        %w1 = arith.addf %xx, %yy : f32
        %w2 = arith.addf %w1, %zz : f32
        %w = arith.addf %w2, %soft : f32
        %r = math.sqrt %w : f32
        %c = arith.mulf %w, %r : f32
        %f = arith.divf %dx, %c : f32
        %s2 = arith.addf %s, %f : f32
        scf.yield %s2 : f32
      }
      memref.store %sum, %a[%i] : memref<?xf32>
      gpu.return
    }

    // A block of 16 x 16 threads for each pair of matrices.
    gpu.func @bmm(%x: memref<?xf32>, %y: memref<?xf32>, %z: memref<?xf32>)
        workgroup(%sa: memref<16x16xf32, #gpu.address_space<workgroup>>, %sb: memref<16x16xf32, #gpu.address_space<workgroup>>) kernel {
      %b = gpu.block_id x
      %tx = gpu.thread_id x
      %ty = gpu.thread_id y
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c16 = arith.constant 16 : index
      %c256 = arith.constant 256 : index
      %zero = arith.constant 0.0 : f32
      %o = arith.muli %b, %c256 : index
      %r = arith.muli %ty, %c16 : index
      %p = arith.addi %r, %tx : index
      %i = arith.addi %o, %p : index
      %va = memref.load %x[%i] : memref<?xf32>
      %vb = memref.load %y[%i] : memref<?xf32>
      memref.store %va, %sa[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
      memref.store %vb, %sb[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %sum = scf.for %k = %c0 to %c16 step %c1 iter_args(%s = %zero) -> (f32) {
        %a = memref.load %sa[%ty, %k] : memref<16x16xf32, #gpu.address_space<workgroup>>
        %c = memref.load %sb[%k, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
        %m = arith.mulf %a, %c : f32
        %n = arith.addf %s, %m : f32
        scf.yield %n : f32
      }
      memref.store %sum, %z[%i] : memref<?xf32>
      gpu.return
    }

    gpu.func @spmv(%rows: memref<?xi32>, %columns: memref<?xi32>, %values: memref<?xf32>, %x: memref<?xf32>, %y: memref<?xf32>) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %c1 = arith.constant 1 : index
      %zero = arith.constant 0.0 : f32
      %o = arith.muli %b, %d : index
      %i = arith.addi %o, %t : index
      %i1 = arith.addi %i, %c1 : index
      %begin32 = memref.load %rows[%i] : memref<?xi32>
      %end32 = memref.load %rows[%i1] : memref<?xi32>
      %begin = arith.index_cast %begin32 : i32 to index
      %end = arith.index_cast %end32 : i32 to index
      %sum = scf.for %j = %begin to %end step %c1 iter_args(%s = %zero) -> (f32) {
        %c32 = memref.load %columns[%j] : memref<?xi32>
        %c = arith.index_cast %c32 : i32 to index
        %v = memref.load %values[%j] : memref<?xf32>
        %w = memref.load %x[%c] : memref<?xf32>
        %m = arith.mulf %v, %w : f32
        %n = arith.addf %s, %m : f32
        scf.yield %n : f32
      }
      memref.store %sum, %y[%i] : memref<?xf32>
      gpu.return
    }

    // Sorts the 256 numbers of a block.
    gpu.func @bitonic(%x: memref<?xf32>)
        workgroup(%s: memref<256xf32, #gpu.address_space<workgroup>>) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %o = arith.muli %b, %d : index
      %i = arith.addi %o, %t : index
      %v = memref.load %x[%i] : memref<?xf32>
      memref.store %v, %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %z = scf.while (%k = %c2) : (index) -> index {
        %more = arith.cmpi ule, %k, %d : index
        scf.condition(%more) %k : index
      } do {
      ^bb0(%k: index):
        %h = arith.shrui %k, %c1 : index
        %e = scf.while (%j = %h) : (index) -> index {
          %more = arith.cmpi ugt, %j, %c0 : index
          scf.condition(%more) %j : index
        } do {
        ^bb1(%j: index):
          %q = arith.xori %t, %j : index
          %first = arith.cmpi ugt, %q, %t : index
          scf.if %first {
            %a = memref.load %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
            %c = memref.load %s[%q] : memref<256xf32, #gpu.address_space<workgroup>>
            %bit = arith.andi %t, %k : index
            %up = arith.cmpi eq, %bit, %c0 : index
            %gt = arith.cmpf ogt, %a, %c : f32
            %lt = arith.cmpf olt, %a, %c : f32
            %swap = arith.select %up, %gt, %lt : i1
            scf.if %swap {
              memref.store %c, %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
              memref.store %a, %s[%q] : memref<256xf32, #gpu.address_space<workgroup>>
            }
          }
          gpu.barrier
          %j2 = arith.shrui %j, %c1 : index
          scf.yield %j2 : index
        }
        %k2 = arith.addi %k, %k : index
        scf.yield %k2 : index
      }
      %w = memref.load %s[%t] : memref<256xf32, #gpu.address_space<workgroup>>
      memref.store %w, %x[%i] : memref<?xf32>
      gpu.return
    }

    gpu.func @axpy_f16(%x: memref<?xf16>, %y: memref<?xf16>) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %c0 = arith.constant 0 : index
      %two = arith.constant 2.0 : f16
      %o = arith.muli %b, %d : index
      %i = arith.addi %o, %t : index
      %n = memref.dim %x, %c0 : memref<?xf16>
      %in = arith.cmpi ult, %i, %n : index
      scf.if %in {
        %v = memref.load %x[%i] : memref<?xf16>
        %w = memref.load %y[%i] : memref<?xf16>
        %m = arith.mulf %two, %v : f16
        %s = arith.addf %m, %w : f16
        memref.store %s, %y[%i] : memref<?xf16>
      }
      gpu.return
    }
  }
}
