!lhsTensorMap = !nvgpu.tensormap.descriptor<tensor = memref<64x8xf32, 3>, swizzle = none, l2promo = none, oob = zero, interleave = none>
!barrierType = !nvgpu.mbarrier.group<memorySpace = #gpu.address_space<workgroup>>
module {
  func.func @main() {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c128 = arith.constant 128 : index
    %c64 = arith.constant 64 : index
    %c8 = arith.constant 8 : index
    %t = gpu.wait async
    %d, %t1 = gpu.alloc async [%t] () : memref<64x8xf32>
    gpu.wait [%t1]
    %u = memref.cast %d : memref<64x8xf32> to memref<*xf32>
    %desc = nvgpu.tma.create.descriptor %u box[%c64, %c8] : memref<*xf32> -> !lhsTensorMap
    gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%sx = %c128, %sy = %c1, %sz = %c1) {
      %p = arith.cmpi eq, %tx, %c0 : index
      nvgpu.tma.prefetch.descriptor %desc, predicate = %p : !lhsTensorMap
      gpu.terminator
    }
    return
  }
}
