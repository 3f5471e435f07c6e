// Heat that spreads through a box of 48 x 32 x 16 points, eight steps.
//
// Shows: a three-dimensional grid of three-dimensional blocks, a tile with its halo in workgroup
// memory, a barrier, and launches in a loop that swap two buffers.
//
//   mlir-offload run stencil.mlir
//
// new(p) = p + (sum of the six neighbours - 6 p) / 8. Points on the surface keep their value.

module attributes {gpu.container_module} {

gpu.module @kernels {
  // Blocks of 8 x 8 x 4 threads; the tile has one more point on each side: 10 x 10 x 6.
  gpu.func @step(%old: memref<16x32x48xf32>, %new: memref<16x32x48xf32>)
      workgroup(%tile: memref<6x10x10xf32, #gpu.address_space<workgroup>>)
      kernel attributes {gpu.known_block_size = array<i32: 8, 8, 4>} {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c7 = arith.constant 7 : index
    %c15 = arith.constant 15 : index
    %c31 = arith.constant 31 : index
    %c47 = arith.constant 47 : index
    %six = arith.constant 6.0 : f32
    %eighth = arith.constant 0.125 : f32
    %tx = gpu.thread_id x
    %ty = gpu.thread_id y
    %tz = gpu.thread_id z
    %bx = gpu.block_id x
    %by = gpu.block_id y
    %bz = gpu.block_id z
    %sx = gpu.block_dim x
    %sy = gpu.block_dim y
    %sz = gpu.block_dim z
    %x0 = arith.muli %bx, %sx : index
    %y0 = arith.muli %by, %sy : index
    %z0 = arith.muli %bz, %sz : index
    %x = arith.addi %x0, %tx : index
    %y = arith.addi %y0, %ty : index
    %z = arith.addi %z0, %tz : index

    // This thread's own point.
    %lx = arith.addi %tx, %c1 : index
    %ly = arith.addi %ty, %c1 : index
    %lz = arith.addi %tz, %c1 : index
    %own = memref.load %old[%z, %y, %x] : memref<16x32x48xf32>
    memref.store %own, %tile[%lz, %ly, %lx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>

    // Threads at a face of the block bring the point beyond it, unless that is outside of the box.
    %left = arith.subi %x, %c1 : index
    %right = arith.addi %x, %c1 : index
    %up = arith.subi %y, %c1 : index
    %down = arith.addi %y, %c1 : index
    %front = arith.subi %z, %c1 : index
    %back = arith.addi %z, %c1 : index
    %llx = arith.addi %lx, %c1 : index
    %lly = arith.addi %ly, %c1 : index
    %llz = arith.addi %lz, %c1 : index
    %is_x0 = arith.cmpi eq, %tx, %c0 : index
    %has_left = arith.cmpi ne, %x, %c0 : index
    %bring_left = arith.andi %is_x0, %has_left : i1
    scf.if %bring_left {
      %value = memref.load %old[%z, %y, %left] : memref<16x32x48xf32>
      memref.store %value, %tile[%lz, %ly, %tx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
    }
    %is_x7 = arith.cmpi eq, %tx, %c7 : index
    %has_right = arith.cmpi ne, %x, %c47 : index
    %bring_right = arith.andi %is_x7, %has_right : i1
    scf.if %bring_right {
      %value = memref.load %old[%z, %y, %right] : memref<16x32x48xf32>
      memref.store %value, %tile[%lz, %ly, %llx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
    }
    %is_y0 = arith.cmpi eq, %ty, %c0 : index
    %has_up = arith.cmpi ne, %y, %c0 : index
    %bring_up = arith.andi %is_y0, %has_up : i1
    scf.if %bring_up {
      %value = memref.load %old[%z, %up, %x] : memref<16x32x48xf32>
      memref.store %value, %tile[%lz, %ty, %lx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
    }
    %is_y7 = arith.cmpi eq, %ty, %c7 : index
    %has_down = arith.cmpi ne, %y, %c31 : index
    %bring_down = arith.andi %is_y7, %has_down : i1
    scf.if %bring_down {
      %value = memref.load %old[%z, %down, %x] : memref<16x32x48xf32>
      memref.store %value, %tile[%lz, %lly, %lx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
    }
    %is_z0 = arith.cmpi eq, %tz, %c0 : index
    %has_front = arith.cmpi ne, %z, %c0 : index
    %bring_front = arith.andi %is_z0, %has_front : i1
    scf.if %bring_front {
      %value = memref.load %old[%front, %y, %x] : memref<16x32x48xf32>
      memref.store %value, %tile[%tz, %ly, %lx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
    }
    %is_z3 = arith.cmpi eq, %tz, %c3 : index
    %has_back = arith.cmpi ne, %z, %c15 : index
    %bring_back = arith.andi %is_z3, %has_back : i1
    scf.if %bring_back {
      %value = memref.load %old[%back, %y, %x] : memref<16x32x48xf32>
      memref.store %value, %tile[%llz, %ly, %lx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
    }
    gpu.barrier

    %inside_x = arith.andi %has_left, %has_right : i1
    %inside_y = arith.andi %has_up, %has_down : i1
    %inside_z = arith.andi %has_front, %has_back : i1
    %inside_xy = arith.andi %inside_x, %inside_y : i1
    %inside = arith.andi %inside_xy, %inside_z : i1
    %result = scf.if %inside -> f32 {
      %n0 = memref.load %tile[%lz, %ly, %tx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
      %n1 = memref.load %tile[%lz, %ly, %llx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
      %n2 = memref.load %tile[%lz, %ty, %lx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
      %n3 = memref.load %tile[%lz, %lly, %lx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
      %n4 = memref.load %tile[%tz, %ly, %lx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
      %n5 = memref.load %tile[%llz, %ly, %lx] : memref<6x10x10xf32, #gpu.address_space<workgroup>>
      %s1 = arith.addf %n0, %n1 : f32
      %s2 = arith.addf %s1, %n2 : f32
      %s3 = arith.addf %s2, %n3 : f32
      %s4 = arith.addf %s3, %n4 : f32
      %s5 = arith.addf %s4, %n5 : f32
      %sixfold = arith.mulf %six, %own : f32
      %difference = arith.subf %s5, %sixfold : f32
      %change = arith.mulf %difference, %eighth : f32
      %value = arith.addf %own, %change : f32
      scf.yield %value : f32
    } else {
      scf.yield %own : f32
    }
    memref.store %result, %new[%z, %y, %x] : memref<16x32x48xf32>
    gpu.return
  }
}

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @ok("stencil: ok, heat in the middle %.6f, max error %g\0A\00")
llvm.mlir.global internal constant @bad("stencil: WRONG, heat in the middle %.6f, max error %g\0A\00")

// The same step in plain loops.
func.func private @reference_step(%old: memref<16x32x48xf32>, %new: memref<16x32x48xf32>) {
  %c1 = arith.constant 1 : index
  %c15 = arith.constant 15 : index
  %c31 = arith.constant 31 : index
  %c47 = arith.constant 47 : index
  %six = arith.constant 6.0 : f32
  %eighth = arith.constant 0.125 : f32
  memref.copy %old, %new : memref<16x32x48xf32> to memref<16x32x48xf32>
  scf.for %z = %c1 to %c15 step %c1 {
    scf.for %y = %c1 to %c31 step %c1 {
      scf.for %x = %c1 to %c47 step %c1 {
        %left = arith.subi %x, %c1 : index
        %right = arith.addi %x, %c1 : index
        %up = arith.subi %y, %c1 : index
        %down = arith.addi %y, %c1 : index
        %front = arith.subi %z, %c1 : index
        %back = arith.addi %z, %c1 : index
        %own = memref.load %old[%z, %y, %x] : memref<16x32x48xf32>
        %n0 = memref.load %old[%z, %y, %left] : memref<16x32x48xf32>
        %n1 = memref.load %old[%z, %y, %right] : memref<16x32x48xf32>
        %n2 = memref.load %old[%z, %up, %x] : memref<16x32x48xf32>
        %n3 = memref.load %old[%z, %down, %x] : memref<16x32x48xf32>
        %n4 = memref.load %old[%front, %y, %x] : memref<16x32x48xf32>
        %n5 = memref.load %old[%back, %y, %x] : memref<16x32x48xf32>
        %s1 = arith.addf %n0, %n1 : f32
        %s2 = arith.addf %s1, %n2 : f32
        %s3 = arith.addf %s2, %n3 : f32
        %s4 = arith.addf %s3, %n4 : f32
        %s5 = arith.addf %s4, %n5 : f32
        %sixfold = arith.mulf %six, %own : f32
        %difference = arith.subf %s5, %sixfold : f32
        %change = arith.mulf %difference, %eighth : f32
        %value = arith.addf %own, %change : f32
        memref.store %value, %new[%z, %y, %x] : memref<16x32x48xf32>
      }
    }
  }
  return
}

// A start with no symmetry, so that swapped axes show: (7x + 5y + 3z) mod 64.
func.func private @fill(%box: memref<16x32x48xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c5 = arith.constant 5 : index
  %c7 = arith.constant 7 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c48 = arith.constant 48 : index
  %c63 = arith.constant 63 : index
  scf.for %z = %c0 to %c16 step %c1 {
    scf.for %y = %c0 to %c32 step %c1 {
      scf.for %x = %c0 to %c48 step %c1 {
        %x7 = arith.muli %x, %c7 : index
        %y5 = arith.muli %y, %c5 : index
        %z3 = arith.muli %z, %c3 : index
        %xy = arith.addi %x7, %y5 : index
        %xyz = arith.addi %xy, %z3 : index
        %low = arith.andi %xyz, %c63 : index
        %int = arith.index_cast %low : index to i32
        %value = arith.sitofp %int : i32 to f32
        memref.store %value, %box[%z, %y, %x] : memref<16x32x48xf32>
      }
    }
  }
  return
}

func.func private @max_error(%a: memref<16x32x48xf32>, %b: memref<16x32x48xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %c48 = arith.constant 48 : index
  %zero = arith.constant 0.0 : f32
  %error = scf.for %z = %c0 to %c16 step %c1 iter_args(%worst_z = %zero) -> f32 {
    %error_z = scf.for %y = %c0 to %c32 step %c1 iter_args(%worst_y = %worst_z) -> f32 {
      %error_y = scf.for %x = %c0 to %c48 step %c1 iter_args(%worst_x = %worst_y) -> f32 {
        %in_a = memref.load %a[%z, %y, %x] : memref<16x32x48xf32>
        %in_b = memref.load %b[%z, %y, %x] : memref<16x32x48xf32>
        %difference = arith.subf %in_a, %in_b : f32
        %distance = math.absf %difference : f32
        %larger = arith.maximumf %worst_x, %distance : f32
        scf.yield %larger : f32
      }
      scf.yield %error_y : f32
    }
    scf.yield %error_z : f32
  }
  return %error : f32
}

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c6 = arith.constant 6 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %c24 = arith.constant 24 : index
  %a = memref.alloc() : memref<16x32x48xf32>
  %b = memref.alloc() : memref<16x32x48xf32>
  %got = memref.alloc() : memref<16x32x48xf32>
  call @fill(%a) : (memref<16x32x48xf32>) -> ()

  %da = gpu.alloc() : memref<16x32x48xf32>
  %db = gpu.alloc() : memref<16x32x48xf32>
  gpu.memcpy %da, %a : memref<16x32x48xf32>, memref<16x32x48xf32>
  // 48 / 8, 32 / 8 and 16 / 4 blocks. Each step reads what the step before it wrote.
  %last:2 = scf.for %step = %c0 to %c8 step %c1 iter_args(%old = %da, %new = %db)
      -> (memref<16x32x48xf32>, memref<16x32x48xf32>) {
    gpu.launch_func @kernels::@step blocks in (%c6, %c4, %c4) threads in (%c8, %c8, %c4)
        args(%old : memref<16x32x48xf32>, %new : memref<16x32x48xf32>)
    scf.yield %new, %old : memref<16x32x48xf32>, memref<16x32x48xf32>
  }
  gpu.memcpy %got, %last#0 : memref<16x32x48xf32>, memref<16x32x48xf32>
  gpu.dealloc %da : memref<16x32x48xf32>
  gpu.dealloc %db : memref<16x32x48xf32>

  %expected:2 = scf.for %step = %c0 to %c8 step %c1 iter_args(%old = %a, %new = %b)
      -> (memref<16x32x48xf32>, memref<16x32x48xf32>) {
    func.call @reference_step(%old, %new) : (memref<16x32x48xf32>, memref<16x32x48xf32>) -> ()
    scf.yield %new, %old : memref<16x32x48xf32>, memref<16x32x48xf32>
  }
  %error = call @max_error(%got, %expected#0) : (memref<16x32x48xf32>, memref<16x32x48xf32>) -> f32
  %middle = memref.load %got[%c8, %c16, %c24] : memref<16x32x48xf32>
  memref.dealloc %a : memref<16x32x48xf32>
  memref.dealloc %b : memref<16x32x48xf32>
  memref.dealloc %got : memref<16x32x48xf32>

  %tolerance = arith.constant 1.0e-04 : f32
  %right = arith.cmpf ole, %error, %tolerance : f32
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = arith.select %right, %text_ok, %text_bad : !llvm.ptr
  %middle64 = arith.extf %middle : f32 to f64
  %error64 = arith.extf %error : f32 to f64
  llvm.call @printf(%text, %middle64, %error64) vararg(!llvm.func<i32 (ptr, ...)>)
      : (!llvm.ptr, f64, f64) -> i32
  %success = arith.constant 0 : i32
  %failure = arith.constant 1 : i32
  %status = arith.select %right, %success, %failure : i32
  return %status : i32
}

}
