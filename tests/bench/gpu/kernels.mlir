// The kernels of kernels.cu in the GPU dialect.

gpu.module @kernels {
  gpu.func @saxpy(%x: memref<?xf32>, %y: memref<?xf32>, %a: f32, %n: index) kernel
      attributes {known_block_size = array<i32: 256, 1, 1>} {
    %block = gpu.block_id x
    %size = gpu.block_dim x
    %thread = gpu.thread_id x
    %blocks = gpu.grid_dim x
    %step = arith.muli %blocks, %size : index
    %base = arith.muli %block, %size : index
    %first = arith.addi %base, %thread : index
    scf.for %i = %first to %n step %step {
      %xi = memref.load %x[%i] : memref<?xf32>
      %yi = memref.load %y[%i] : memref<?xf32>
      %product = arith.mulf %a, %xi : f32
      %sum = arith.addf %product, %yi : f32
      memref.store %sum, %y[%i] : memref<?xf32>
    }
    gpu.return
  }

  gpu.func @matmul(%a: memref<?x?xf32>, %b: memref<?x?xf32>, %c: memref<?x?xf32>, %n: index)
      workgroup(%tile_a: memref<16x16xf32, #gpu.address_space<workgroup>>,
                %tile_b: memref<16x16xf32, #gpu.address_space<workgroup>>)
      kernel attributes {known_block_size = array<i32: 16, 16, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %zero = arith.constant 0.0 : f32
    %tx = gpu.thread_id x
    %ty = gpu.thread_id y
    %bx = gpu.block_id x
    %by = gpu.block_id y
    %row0 = arith.muli %by, %c16 : index
    %column0 = arith.muli %bx, %c16 : index
    %row = arith.addi %row0, %ty : index
    %column = arith.addi %column0, %tx : index
    %sum = scf.for %k0 = %c0 to %n step %c16 iter_args(%outer = %zero) -> f32 {
      %ka = arith.addi %k0, %tx : index
      %kb = arith.addi %k0, %ty : index
      %va = memref.load %a[%row, %ka] : memref<?x?xf32>
      %vb = memref.load %b[%kb, %column] : memref<?x?xf32>
      memref.store %va, %tile_a[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
      memref.store %vb, %tile_b[%ty, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %next = scf.for %k = %c0 to %c16 step %c1 iter_args(%inner = %outer) -> f32 {
        %ea = memref.load %tile_a[%ty, %k] : memref<16x16xf32, #gpu.address_space<workgroup>>
        %eb = memref.load %tile_b[%k, %tx] : memref<16x16xf32, #gpu.address_space<workgroup>>
        %product = arith.mulf %ea, %eb : f32
        %new = arith.addf %inner, %product : f32
        scf.yield %new : f32
      }
      gpu.barrier
      scf.yield %next : f32
    }
    memref.store %sum, %c[%row, %column] : memref<?x?xf32>
    gpu.return
  }

  gpu.func @reduction(%x: memref<?xf32>, %sums: memref<?xf32>, %n: index)
      workgroup(%part: memref<256xf32, #gpu.address_space<workgroup>>)
      kernel attributes {known_block_size = array<i32: 256, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c128 = arith.constant 128 : index
    %c256 = arith.constant 256 : index
    %zero = arith.constant 0.0 : f32
    %thread = gpu.thread_id x
    %block = gpu.block_id x
    %blocks = gpu.grid_dim x
    %step = arith.muli %blocks, %c256 : index
    %base = arith.muli %block, %c256 : index
    %first = arith.addi %base, %thread : index
    %own = scf.for %i = %first to %n step %step iter_args(%sum = %zero) -> f32 {
      %element = memref.load %x[%i] : memref<?xf32>
      %new = arith.addf %sum, %element : f32
      scf.yield %new : f32
    }
    memref.store %own, %part[%thread] : memref<256xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %last = scf.while (%half = %c128) : (index) -> index {
      %more = arith.cmpi sgt, %half, %c0 : index
      scf.condition(%more) %half : index
    } do {
    ^bb0(%half: index):
      %active = arith.cmpi slt, %thread, %half : index
      scf.if %active {
        %other = arith.addi %thread, %half : index
        %left = memref.load %part[%thread] : memref<256xf32, #gpu.address_space<workgroup>>
        %right = memref.load %part[%other] : memref<256xf32, #gpu.address_space<workgroup>>
        %both = arith.addf %left, %right : f32
        memref.store %both, %part[%thread] : memref<256xf32, #gpu.address_space<workgroup>>
      }
      gpu.barrier
      %next = arith.shrsi %half, %c1 : index
      scf.yield %next : index
    }
    %is_first = arith.cmpi eq, %thread, %c0 : index
    scf.if %is_first {
      %all = memref.load %part[%c0] : memref<256xf32, #gpu.address_space<workgroup>>
      memref.store %all, %sums[%block] : memref<?xf32>
    }
    gpu.return
  }

  gpu.func @transpose(%in: memref<?x?xf32>, %out: memref<?x?xf32>)
      workgroup(%tile: memref<32x33xf32, #gpu.address_space<workgroup>>)
      kernel attributes {known_block_size = array<i32: 32, 8, 1>} {
    %c0 = arith.constant 0 : index
    %c8 = arith.constant 8 : index
    %c32 = arith.constant 32 : index
    %tx = gpu.thread_id x
    %ty = gpu.thread_id y
    %bx = gpu.block_id x
    %by = gpu.block_id y
    %x0 = arith.muli %bx, %c32 : index
    %y0 = arith.muli %by, %c32 : index
    %yi = arith.addi %y0, %ty : index
    %yo = arith.addi %x0, %ty : index
    %xi = arith.addi %x0, %tx : index
    %xo = arith.addi %y0, %tx : index
    scf.for %j = %c0 to %c32 step %c8 {
      %line = arith.addi %ty, %j : index
      %row = arith.addi %yi, %j : index
      %element = memref.load %in[%row, %xi] : memref<?x?xf32>
      memref.store %element, %tile[%line, %tx] : memref<32x33xf32, #gpu.address_space<workgroup>>
    }
    gpu.barrier
    scf.for %j = %c0 to %c32 step %c8 {
      %line = arith.addi %ty, %j : index
      %row = arith.addi %yo, %j : index
      %element = memref.load %tile[%tx, %line] : memref<32x33xf32, #gpu.address_space<workgroup>>
      memref.store %element, %out[%row, %xo] : memref<?x?xf32>
    }
    gpu.return
  }

  gpu.func @stencil(%in: memref<?x?xf32>, %out: memref<?x?xf32>, %rows: index, %n: index) kernel
      attributes {known_block_size = array<i32: 256, 1, 1>} {
    %c1 = arith.constant 1 : index
    %c256 = arith.constant 256 : index
    %half = arith.constant 0.5 : f32
    %eighth = arith.constant 0.125 : f32
    %thread = gpu.thread_id x
    %block = gpu.block_id x
    %base = arith.muli %block, %c256 : index
    %own = arith.addi %base, %thread : index
    %i = arith.addi %own, %c1 : index
    %left = arith.subi %i, %c1 : index
    %right = arith.addi %i, %c1 : index
    %end = arith.subi %n, %c1 : index
    %last = arith.subi %rows, %c1 : index
    %inside = arith.cmpi slt, %i, %end : index
    scf.if %inside {
      scf.for %row = %c1 to %last step %c1 {
        %above = arith.subi %row, %c1 : index
        %below = arith.addi %row, %c1 : index
        %e0 = memref.load %in[%above, %i] : memref<?x?xf32>
        %e1 = memref.load %in[%below, %i] : memref<?x?xf32>
        %e2 = memref.load %in[%row, %left] : memref<?x?xf32>
        %e3 = memref.load %in[%row, %right] : memref<?x?xf32>
        %e4 = memref.load %in[%row, %i] : memref<?x?xf32>
        %s0 = arith.addf %e0, %e1 : f32
        %s1 = arith.addf %s0, %e2 : f32
        %s2 = arith.addf %s1, %e3 : f32
        %p0 = arith.mulf %half, %e4 : f32
        %p1 = arith.mulf %eighth, %s2 : f32
        %new = arith.addf %p0, %p1 : f32
        memref.store %new, %out[%row, %i] : memref<?x?xf32>
      }
    }
    gpu.return
  }

  gpu.func @softmax(%in: memref<?x?xf32>, %out: memref<?x?xf32>, %n: index) kernel
      attributes {known_block_size = array<i32: 256, 1, 1>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c256 = arith.constant 256 : index
    %zero = arith.constant 0.0 : f32
    %one = arith.constant 1.0 : f32
    %least = arith.constant 0xFF800000 : f32
    %thread = gpu.thread_id x
    %block = gpu.block_id x
    %base = arith.muli %block, %c256 : index
    %row = arith.addi %base, %thread : index
    %most = scf.for %j = %c0 to %n step %c1 iter_args(%old = %least) -> f32 {
      %element = memref.load %in[%row, %j] : memref<?x?xf32>
      %new = arith.maxnumf %old, %element : f32
      scf.yield %new : f32
    }
    %sum = scf.for %j = %c0 to %n step %c1 iter_args(%old = %zero) -> f32 {
      %element = memref.load %in[%row, %j] : memref<?x?xf32>
      %less = arith.subf %element, %most : f32
      %power = math.exp %less : f32
      %new = arith.addf %old, %power : f32
      scf.yield %new : f32
    }
    %scale = arith.divf %one, %sum : f32
    scf.for %j = %c0 to %n step %c1 {
      %element = memref.load %in[%row, %j] : memref<?x?xf32>
      %less = arith.subf %element, %most : f32
      %power = math.exp %less : f32
      %value = arith.mulf %power, %scale : f32
      memref.store %value, %out[%row, %j] : memref<?x?xf32>
    }
    gpu.return
  }
}
