// Products of matrices by the threads of one subgroup, in the ways that NVIDIA's GPUs have. The numbers are small, so
// that all products are exact: a is (i + j) % 5 - 2, b is (2 i + j) % 7 - 3, c is i - j.
func.func @matrices(%out: memref<3x16x8xf32>, %each: memref<7x16x16xf16>, %whole: memref<6x16x16xi32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %device = gpu.alloc() : memref<3x16x8xf32>
  %da = gpu.alloc() : memref<16x16xf16>
  %de = gpu.alloc() : memref<7x16x16xf16>
  %di = gpu.alloc() : memref<6x16x16xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c32, %sy = %c1, %sz = %c1)
             workgroup(%a : memref<16x16xf16, #gpu.address_space<workgroup>>, %b : memref<16x16xf16, #gpu.address_space<workgroup>>,
                       %copy : memref<16x16xf16, #gpu.address_space<workgroup>>, %c : memref<16x16xf32, #gpu.address_space<workgroup>>) {
    %k0 = arith.constant 0 : index
    %k1 = arith.constant 1 : index
    %k2 = arith.constant 2 : index
    %k3 = arith.constant 3 : index
    %k4 = arith.constant 4 : index
    %k5 = arith.constant 5 : index
    %k7 = arith.constant 7 : index
    %k8 = arith.constant 8 : index
    %k16 = arith.constant 16 : index
    %k32 = arith.constant 32 : index
    %k256 = arith.constant 256 : index
    scf.for %at = %tx to %k256 step %k32 {
      %i = arith.divui %at, %k16 : index
      %j = arith.remui %at, %k16 : index
      %s = arith.addi %i, %j : index
      %m5 = arith.remui %s, %k5 : index
      %va = arith.subi %m5, %k2 : index
      %s2 = arith.addi %s, %i : index
      %m7 = arith.remui %s2, %k7 : index
      %vb = arith.subi %m7, %k3 : index
      %vc = arith.subi %i, %j : index
      %ia = arith.index_cast %va : index to i32
      %ib = arith.index_cast %vb : index to i32
      %ic = arith.index_cast %vc : index to i32
      %fa = arith.sitofp %ia : i32 to f16
      %fb = arith.sitofp %ib : i32 to f16
      %fc = arith.sitofp %ic : i32 to f32
      memref.store %fa, %a[%i, %j] : memref<16x16xf16, #gpu.address_space<workgroup>>
      memref.store %fa, %da[%i, %j] : memref<16x16xf16>
      memref.store %fb, %b[%i, %j] : memref<16x16xf16, #gpu.address_space<workgroup>>
      memref.store %fc, %c[%i, %j] : memref<16x16xf32, #gpu.address_space<workgroup>>
    }
    gpu.barrier
    // wmma
    %wa = gpu.subgroup_mma_load_matrix %a[%k0, %k0] {leadDimension = 16 : index} : memref<16x16xf16, #gpu.address_space<workgroup>> -> !gpu.mma_matrix<16x16xf16, "AOp">
    %wb = gpu.subgroup_mma_load_matrix %b[%k0, %k0] {leadDimension = 16 : index} : memref<16x16xf16, #gpu.address_space<workgroup>> -> !gpu.mma_matrix<16x16xf16, "BOp">
    %wc = gpu.subgroup_mma_load_matrix %c[%k0, %k0] {leadDimension = 16 : index} : memref<16x16xf32, #gpu.address_space<workgroup>> -> !gpu.mma_matrix<16x16xf32, "COp">
    // In a loop, as products of large matrices have it.
    %once = arith.addi %bx, %k1 : index
    %wd = scf.for %part = %k0 to %once step %k1 iter_args(%sum_so_far = %wc) -> !gpu.mma_matrix<16x16xf32, "COp"> {
      %next_sum = gpu.subgroup_mma_compute %wa, %wb, %sum_so_far : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp"> -> !gpu.mma_matrix<16x16xf32, "COp">
      scf.yield %next_sum : !gpu.mma_matrix<16x16xf32, "COp">
    }
    gpu.barrier
    gpu.subgroup_mma_store_matrix %wd, %c[%k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf32, "COp">, memref<16x16xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %eight = arith.constant 128 : index
    scf.for %at = %tx to %eight step %k32 {
      %i = arith.divui %at, %k8 : index
      %j = arith.remui %at, %k8 : index
      %v = memref.load %c[%i, %j] : memref<16x16xf32, #gpu.address_space<workgroup>>
      memref.store %v, %device[%k0, %i, %j] : memref<3x16x8xf32>
    }
    // cp.async of a, 16 bytes by each thread; mma.sync of what ldmatrix loads, and of what each thread picks
    %row = arith.divui %tx, %k2 : index
    %half = arith.remui %tx, %k2 : index
    %from = arith.muli %half, %k8 : index
    %token = nvgpu.device_async_copy %da[%row, %from], %copy[%row, %from], 8 : memref<16x16xf16> to memref<16x16xf16, #gpu.address_space<workgroup>>
    %group = nvgpu.device_async_create_group %token
    nvgpu.device_async_wait %group
    gpu.barrier
    %lane_row = arith.remui %tx, %k16 : index
    %lane_block = arith.divui %tx, %k16 : index
    %lane_column = arith.muli %lane_block, %k8 : index
    %fa4 = nvgpu.ldmatrix %copy[%lane_row, %lane_column] {numTiles = 4 : i32, transpose = false} : memref<16x16xf16, #gpu.address_space<workgroup>> -> vector<4x2xf16>
    %fb2 = nvgpu.ldmatrix %b[%lane_row, %k0] {numTiles = 2 : i32, transpose = true} : memref<16x16xf16, #gpu.address_space<workgroup>> -> vector<2x2xf16>
    %zero = arith.constant dense<0.0> : vector<2x2xf32>
    %sum = nvgpu.mma.sync (%fa4, %fb2, %zero) {mmaShape = [16, 8, 16]} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>) -> vector<2x2xf32>
    // The documented places: lane / 4 and lane / 4 + 8 are rows, 2 (lane % 4) and the next are columns.
    %quad = arith.divui %tx, %k4 : index
    %quad8 = arith.addi %quad, %k8 : index
    %in_quad = arith.remui %tx, %k4 : index
    %first = arith.muli %in_quad, %k2 : index
    %second = arith.addi %first, %k1 : index
    %d00 = vector.extract %sum[0, 0] : f32 from vector<2x2xf32>
    %d01 = vector.extract %sum[0, 1] : f32 from vector<2x2xf32>
    %d10 = vector.extract %sum[1, 0] : f32 from vector<2x2xf32>
    %d11 = vector.extract %sum[1, 1] : f32 from vector<2x2xf32>
    memref.store %d00, %device[%k1, %quad, %first] : memref<3x16x8xf32>
    memref.store %d01, %device[%k1, %quad, %second] : memref<3x16x8xf32>
    memref.store %d10, %device[%k1, %quad8, %first] : memref<3x16x8xf32>
    memref.store %d11, %device[%k1, %quad8, %second] : memref<3x16x8xf32>
    // tf32, 16 x 8 by 8 x 8, from single elements
    %pa0 = memref.load %a[%quad, %in_quad] : memref<16x16xf16, #gpu.address_space<workgroup>>
    %pa1 = memref.load %a[%quad8, %in_quad] : memref<16x16xf16, #gpu.address_space<workgroup>>
    %next = arith.addi %in_quad, %k4 : index
    %pa2 = memref.load %a[%quad, %next] : memref<16x16xf16, #gpu.address_space<workgroup>>
    %pa3 = memref.load %a[%quad8, %next] : memref<16x16xf16, #gpu.address_space<workgroup>>
    %pb0 = memref.load %b[%in_quad, %quad] : memref<16x16xf16, #gpu.address_space<workgroup>>
    %pb1 = memref.load %b[%next, %quad] : memref<16x16xf16, #gpu.address_space<workgroup>>
    %half_a = vector.from_elements %pa0, %pa1, %pa2, %pa3 : vector<4x1xf16>
    %half_b = vector.from_elements %pb0, %pb1 : vector<2x1xf16>
    %ta = arith.extf %half_a : vector<4x1xf16> to vector<4x1xf32>
    %tb = arith.extf %half_b : vector<2x1xf16> to vector<2x1xf32>
    %td = nvgpu.mma.sync (%ta, %tb, %zero) {mmaShape = [16, 8, 8], tf32Enabled} : (vector<4x1xf32>, vector<2x1xf32>, vector<2x2xf32>) -> vector<2x2xf32>
    %e00 = vector.extract %td[0, 0] : f32 from vector<2x2xf32>
    %e01 = vector.extract %td[0, 1] : f32 from vector<2x2xf32>
    %e10 = vector.extract %td[1, 0] : f32 from vector<2x2xf32>
    %e11 = vector.extract %td[1, 1] : f32 from vector<2x2xf32>
    memref.store %e00, %device[%k2, %quad, %first] : memref<3x16x8xf32>
    memref.store %e01, %device[%k2, %quad, %second] : memref<3x16x8xf32>
    memref.store %e10, %device[%k2, %quad8, %first] : memref<3x16x8xf32>
    memref.store %e11, %device[%k2, %quad8, %second] : memref<3x16x8xf32>
    // Element by element
    %three = arith.constant 3.0 : f16
    %two = arith.constant 2.0 : f16
    %seven = arith.constant 7 : i32
    %minus2 = arith.constant -2 : i32
    %e3 = gpu.subgroup_mma_constant_matrix %three : !gpu.mma_matrix<16x16xf16, "COp">
    %e2 = gpu.subgroup_mma_constant_matrix %two : !gpu.mma_matrix<16x16xf16, "COp">
    %i7 = gpu.subgroup_mma_constant_matrix %seven : !gpu.mma_matrix<16x16xi32, "COp">
    %i2 = gpu.subgroup_mma_constant_matrix %minus2 : !gpu.mma_matrix<16x16xi32, "COp">
    %naddf = arith.constant 0 : index
    %raddf = gpu.subgroup_mma_elementwise addf %e3, %e2 : (!gpu.mma_matrix<16x16xf16, "COp">, !gpu.mma_matrix<16x16xf16, "COp">) -> !gpu.mma_matrix<16x16xf16, "COp">
    gpu.subgroup_mma_store_matrix %raddf, %de[%naddf, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf16, "COp">, memref<7x16x16xf16>
    %nmulf = arith.constant 1 : index
    %rmulf = gpu.subgroup_mma_elementwise mulf %e3, %e2 : (!gpu.mma_matrix<16x16xf16, "COp">, !gpu.mma_matrix<16x16xf16, "COp">) -> !gpu.mma_matrix<16x16xf16, "COp">
    gpu.subgroup_mma_store_matrix %rmulf, %de[%nmulf, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf16, "COp">, memref<7x16x16xf16>
    %ndivf = arith.constant 2 : index
    %rdivf = gpu.subgroup_mma_elementwise divf %e3, %e2 : (!gpu.mma_matrix<16x16xf16, "COp">, !gpu.mma_matrix<16x16xf16, "COp">) -> !gpu.mma_matrix<16x16xf16, "COp">
    gpu.subgroup_mma_store_matrix %rdivf, %de[%ndivf, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf16, "COp">, memref<7x16x16xf16>
    %nsubf = arith.constant 3 : index
    %rsubf = gpu.subgroup_mma_elementwise subf %e3, %e2 : (!gpu.mma_matrix<16x16xf16, "COp">, !gpu.mma_matrix<16x16xf16, "COp">) -> !gpu.mma_matrix<16x16xf16, "COp">
    gpu.subgroup_mma_store_matrix %rsubf, %de[%nsubf, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf16, "COp">, memref<7x16x16xf16>
    %nmaxf = arith.constant 4 : index
    %rmaxf = gpu.subgroup_mma_elementwise maxf %e3, %e2 : (!gpu.mma_matrix<16x16xf16, "COp">, !gpu.mma_matrix<16x16xf16, "COp">) -> !gpu.mma_matrix<16x16xf16, "COp">
    gpu.subgroup_mma_store_matrix %rmaxf, %de[%nmaxf, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf16, "COp">, memref<7x16x16xf16>
    %nminf = arith.constant 5 : index
    %rminf = gpu.subgroup_mma_elementwise minf %e3, %e2 : (!gpu.mma_matrix<16x16xf16, "COp">, !gpu.mma_matrix<16x16xf16, "COp">) -> !gpu.mma_matrix<16x16xf16, "COp">
    gpu.subgroup_mma_store_matrix %rminf, %de[%nminf, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf16, "COp">, memref<7x16x16xf16>
    %nnegatef = arith.constant 6 : index
    %rnegatef = gpu.subgroup_mma_elementwise negatef %e3 : (!gpu.mma_matrix<16x16xf16, "COp">) -> !gpu.mma_matrix<16x16xf16, "COp">
    gpu.subgroup_mma_store_matrix %rnegatef, %de[%nnegatef, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf16, "COp">, memref<7x16x16xf16>
    %naddi = arith.constant 0 : index
    %raddi = gpu.subgroup_mma_elementwise addi %i7, %i2 : (!gpu.mma_matrix<16x16xi32, "COp">, !gpu.mma_matrix<16x16xi32, "COp">) -> !gpu.mma_matrix<16x16xi32, "COp">
    gpu.subgroup_mma_store_matrix %raddi, %di[%naddi, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xi32, "COp">, memref<6x16x16xi32>
    %nsubi = arith.constant 1 : index
    %rsubi = gpu.subgroup_mma_elementwise subi %i7, %i2 : (!gpu.mma_matrix<16x16xi32, "COp">, !gpu.mma_matrix<16x16xi32, "COp">) -> !gpu.mma_matrix<16x16xi32, "COp">
    gpu.subgroup_mma_store_matrix %rsubi, %di[%nsubi, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xi32, "COp">, memref<6x16x16xi32>
    %nmuli = arith.constant 2 : index
    %rmuli = gpu.subgroup_mma_elementwise muli %i7, %i2 : (!gpu.mma_matrix<16x16xi32, "COp">, !gpu.mma_matrix<16x16xi32, "COp">) -> !gpu.mma_matrix<16x16xi32, "COp">
    gpu.subgroup_mma_store_matrix %rmuli, %di[%nmuli, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xi32, "COp">, memref<6x16x16xi32>
    %ndivs = arith.constant 3 : index
    %rdivs = gpu.subgroup_mma_elementwise divs %i7, %i2 : (!gpu.mma_matrix<16x16xi32, "COp">, !gpu.mma_matrix<16x16xi32, "COp">) -> !gpu.mma_matrix<16x16xi32, "COp">
    gpu.subgroup_mma_store_matrix %rdivs, %di[%ndivs, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xi32, "COp">, memref<6x16x16xi32>
    %ndivu = arith.constant 4 : index
    %rdivu = gpu.subgroup_mma_elementwise divu %i7, %i2 : (!gpu.mma_matrix<16x16xi32, "COp">, !gpu.mma_matrix<16x16xi32, "COp">) -> !gpu.mma_matrix<16x16xi32, "COp">
    gpu.subgroup_mma_store_matrix %rdivu, %di[%ndivu, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xi32, "COp">, memref<6x16x16xi32>
    %nnegates = arith.constant 5 : index
    %rnegates = gpu.subgroup_mma_elementwise negates %i7 : (!gpu.mma_matrix<16x16xi32, "COp">) -> !gpu.mma_matrix<16x16xi32, "COp">
    gpu.subgroup_mma_store_matrix %rnegates, %di[%nnegates, %k0, %k0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xi32, "COp">, memref<6x16x16xi32>
    gpu.terminator
  }
  gpu.memcpy %out, %device : memref<3x16x8xf32>, memref<3x16x8xf32>
  gpu.memcpy %each, %de : memref<7x16x16xf16>, memref<7x16x16xf16>
  gpu.memcpy %whole, %di : memref<6x16x16xi32>, memref<6x16x16xi32>
  gpu.dealloc %de : memref<7x16x16xf16>
  gpu.dealloc %di : memref<6x16x16xi32>
  gpu.dealloc %device : memref<3x16x8xf32>
  gpu.dealloc %da : memref<16x16xf16>
  return
}
