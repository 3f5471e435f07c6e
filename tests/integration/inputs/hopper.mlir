// What sm_90 adds: copies by tensor maps that mbarriers count, products of a warp group, and mbarriers that threads
// test. a has 60 rows, so that four of the box are outside of it. d = a b; each thread of `turns` gets what its
// neighbour wrote before it arrived, turn by turn. `tile` copies by a tensor map that a kernel takes as an argument, and
// by a device function that takes an mbarrier, too. `clear` stores sums that a kernel takes and hands on.
!barrier = !nvgpu.mbarrier.group<memorySpace = #gpu.address_space<workgroup>>
!token = !nvgpu.mbarrier.token
!map_a = !nvgpu.tensormap.descriptor<tensor = memref<64x64xf16, 3>, swizzle = swizzle_128b, l2promo = none, oob = zero, interleave = none>
!map_b = !nvgpu.tensormap.descriptor<tensor = memref<64x64xf16, 3>, swizzle = swizzle_128b, l2promo = none, oob = zero, interleave = none>
!sums = !nvgpu.warpgroup.accumulator<fragmented = vector<64x128xf32>>
!few_sums = !nvgpu.warpgroup.accumulator<fragmented = vector<128x16xf32>>
!map_tile = !nvgpu.tensormap.descriptor<tensor = memref<4x8xf32, 3>, swizzle = none, l2promo = none, oob = zero, interleave = none>
!shared_tile = memref<4x8xf32, #gpu.address_space<workgroup>>
!shared_a = memref<64x64xf16, #gpu.address_space<workgroup>>
!shared_b = memref<64x128xf16, #gpu.address_space<workgroup>>
module attributes {gpu.container_module} {
func.func @product(%a: memref<60x64xf16>, %b: memref<64x128xf16>, %d: memref<64x128xf32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %c128 = arith.constant 128 : index
  %bytes = arith.constant 24576 : i32
  %da = gpu.alloc() : memref<60x64xf16>
  %db = gpu.alloc() : memref<64x128xf16>
  %dd = gpu.alloc() : memref<64x128xf32>
  gpu.memcpy %da, %a : memref<60x64xf16>, memref<60x64xf16>
  gpu.memcpy %db, %b : memref<64x128xf16>, memref<64x128xf16>
  %ua = memref.cast %da : memref<60x64xf16> to memref<*xf16>
  %ub = memref.cast %db : memref<64x128xf16> to memref<*xf16>
  %map_a = nvgpu.tma.create.descriptor %ua box[%c64, %c64] : memref<*xf16> -> !map_a
  %map_b = nvgpu.tma.create.descriptor %ub box[%c64, %c64] : memref<*xf16> -> !map_b
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %bytes {
    %k0 = arith.constant 0 : index
    %k1 = arith.constant 1 : index
    %k64 = arith.constant 64 : index
    %all = arith.constant 24576 : index
    %at_b = arith.constant 8192 : index
    %at_half = arith.constant 16384 : index
    %ticks = arith.constant 10000000 : index
    %even = arith.constant false
    %is_first = arith.cmpi eq, %tx, %k0 : index
    %memory = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %sa = memref.view %memory[%k0][] : memref<?xi8, #gpu.address_space<workgroup>> to !shared_a
    %sb = memref.view %memory[%at_b][] : memref<?xi8, #gpu.address_space<workgroup>> to !shared_b
    %left = memref.view %memory[%at_b][] : memref<?xi8, #gpu.address_space<workgroup>> to !shared_a
    %right = memref.view %memory[%at_half][] : memref<?xi8, #gpu.address_space<workgroup>> to !shared_a
    %barrier = nvgpu.mbarrier.create -> !barrier
    nvgpu.mbarrier.init %barrier[%k0], %k1, predicate = %is_first : !barrier
    gpu.barrier
    nvgpu.tma.prefetch.descriptor %map_a : !map_a
    scf.if %is_first {
      nvgpu.mbarrier.arrive.expect_tx %barrier[%k0], %all : !barrier
      nvgpu.tma.async.load %map_a[%k0, %k0], %barrier[%k0] to %sa : !map_a, !barrier -> !shared_a
      nvgpu.tma.async.load %map_b[%k0, %k0], %barrier[%k0] to %left : !map_b, !barrier -> !shared_a
      nvgpu.tma.async.load %map_b[%k64, %k0], %barrier[%k0] to %right : !map_b, !barrier -> !shared_a
    }
    nvgpu.mbarrier.try_wait.parity %barrier[%k0], %even, %ticks : !barrier
    %zero = nvgpu.warpgroup.mma.init.accumulator -> !sums
    %desc_a = nvgpu.warpgroup.generate.descriptor %sa, %map_a : !shared_a, !map_a -> !nvgpu.warpgroup.descriptor<tensor = memref<64x64xf16, 3>>
    %desc_b = nvgpu.warpgroup.generate.descriptor %sb, %map_b : !shared_b, !map_b -> !nvgpu.warpgroup.descriptor<tensor = memref<64x128xf16, 3>>
    %sums = nvgpu.warpgroup.mma %desc_a, %desc_b, %zero {transposeB} : <tensor = memref<64x64xf16, 3>>, <tensor = memref<64x128xf16, 3>>, !sums -> !sums
    nvvm.wgmma.wait.group.sync.aligned 0
    nvgpu.warpgroup.mma.store %sums, %dd : !sums to memref<64x128xf32>
    gpu.terminator
  }
  gpu.memcpy %d, %dd : memref<64x128xf32>, memref<64x128xf32>
  gpu.dealloc %da : memref<60x64xf16>
  gpu.dealloc %db : memref<64x128xf16>
  gpu.dealloc %dd : memref<64x128xf32>
  return
}

func.func @turns(%out: memref<96xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c96 = arith.constant 96 : index
  %device = gpu.alloc() : memref<96xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c96, %sy = %c1, %sz = %c1)
             workgroup(%row : memref<2x96xi32, #gpu.address_space<workgroup>>) {
    %k0 = arith.constant 0 : index
    %k1 = arith.constant 1 : index
    %k2 = arith.constant 2 : index
    %k5 = arith.constant 5 : index
    %k96 = arith.constant 96 : index
    %is_first = arith.cmpi eq, %tx, %k0 : index
    %barrier = nvgpu.mbarrier.create -> !barrier
    nvgpu.mbarrier.init %barrier[%k0], %k96, predicate = %is_first : !barrier
    gpu.barrier
    %next = arith.addi %tx, %k1 : index
    %neighbour = arith.remui %next, %k96 : index
    %start = arith.index_cast %tx : index to i32
    %last = scf.for %turn = %k0 to %k5 step %k1 iter_args(%value = %start) -> (i32) {
      %side = arith.remui %turn, %k2 : index
      memref.store %value, %row[%side, %tx] : memref<2x96xi32, #gpu.address_space<workgroup>>
      %token = nvgpu.mbarrier.arrive %barrier[%k0] : !barrier -> !token
      scf.while : () -> () {
        %done = nvgpu.mbarrier.test.wait %barrier[%k0], %token : !barrier, !token
        %true = arith.constant true
        %waits = arith.xori %done, %true : i1
        scf.condition(%waits)
      } do {
        scf.yield
      }
      %got = memref.load %row[%side, %neighbour] : memref<2x96xi32, #gpu.address_space<workgroup>>
      scf.yield %got : i32
    }
    memref.store %last, %device[%tx] : memref<96xi32>
    gpu.terminator
  }
  gpu.memcpy %out, %device : memref<96xi32>, memref<96xi32>
  gpu.dealloc %device : memref<96xi32>
  return
}

gpu.module @tiles {
  memref.global "private" @tile : !shared_tile {alignment = 128 : i64}
  func.func @load(%map: !map_tile, %barrier: !barrier, %tile: !shared_tile, %is_first: i1) {
    %k0 = arith.constant 0 : index
    %bytes = arith.constant 128 : index
    nvgpu.mbarrier.arrive.expect_tx %barrier[%k0], %bytes, predicate = %is_first : !barrier
    nvgpu.tma.async.load %map[%k0, %k0], %barrier[%k0] to %tile, predicate = %is_first : !map_tile, !barrier -> !shared_tile
    return
  }
  gpu.func @copy(%map: !map_tile, %out: memref<4x8xf32>) kernel {
    %k0 = arith.constant 0 : index
    %k1 = arith.constant 1 : index
    %ticks = arith.constant 10000000 : index
    %even = arith.constant false
    %x = gpu.thread_id x
    %y = gpu.thread_id y
    %id = arith.addi %x, %y : index
    %is_first = arith.cmpi eq, %id, %k0 : index
    %tile = memref.get_global @tile : !shared_tile
    %barrier = nvgpu.mbarrier.create -> !barrier
    nvgpu.mbarrier.init %barrier[%k0], %k1, predicate = %is_first : !barrier
    gpu.barrier
    func.call @load(%map, %barrier, %tile, %is_first) : (!map_tile, !barrier, !shared_tile, i1) -> ()
    nvgpu.mbarrier.try_wait.parity %barrier[%k0], %even, %ticks : !barrier
    %value = memref.load %tile[%y, %x] : !shared_tile
    memref.store %value, %out[%y, %x] : memref<4x8xf32>
    gpu.return
  }
  func.func @store(%sums: !few_sums, %out: memref<128x16xf32>) {
    nvgpu.warpgroup.mma.store %sums, %out : !few_sums to memref<128x16xf32>
    return
  }
  gpu.func @clear(%sums: !few_sums, %out: memref<128x16xf32>) kernel {
    func.call @store(%sums, %out) : (!few_sums, memref<128x16xf32>) -> ()
    gpu.return
  }
}

func.func @clear(%numbers: memref<128x16xf32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %device = gpu.alloc() : memref<128x16xf32>
  gpu.memcpy %device, %numbers : memref<128x16xf32>, memref<128x16xf32>
  %sums = nvgpu.warpgroup.mma.init.accumulator -> !few_sums
  gpu.launch_func @tiles::@clear blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1)
                  args(%sums : !few_sums, %device : memref<128x16xf32>)
  gpu.memcpy %numbers, %device : memref<128x16xf32>, memref<128x16xf32>
  gpu.dealloc %device : memref<128x16xf32>
  return
}

func.func @tile(%from: memref<4x8xf32>, %to: memref<4x8xf32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %source = gpu.alloc() : memref<4x8xf32>
  %target = gpu.alloc() : memref<4x8xf32>
  gpu.memcpy %source, %from : memref<4x8xf32>, memref<4x8xf32>
  %any = memref.cast %source : memref<4x8xf32> to memref<*xf32>
  %map = nvgpu.tma.create.descriptor %any box[%c4, %c8] : memref<*xf32> -> !map_tile
  gpu.launch_func @tiles::@copy blocks in (%c1, %c1, %c1) threads in (%c8, %c4, %c1)
                  args(%map : !map_tile, %target : memref<4x8xf32>)
  gpu.memcpy %to, %target : memref<4x8xf32>, memref<4x8xf32>
  gpu.dealloc %source : memref<4x8xf32>
  gpu.dealloc %target : memref<4x8xf32>
  return
}
}
