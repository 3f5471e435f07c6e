// The nvgpu dialect, also next to matrices of a subgroup in a loop: compiled for NVIDIA GPUs.
module attributes {gpu.container_module} {

gpu.module @multiplied {
  gpu.func @kernel(%x: memref<16x16xf16>, %y: memref<16x8xf32>)
      workgroup(%shared: memref<16x16xf16, #gpu.address_space<workgroup>>) kernel {
    %c0 = arith.constant 0 : index
    %token = nvgpu.device_async_copy %x[%c0, %c0], %shared[%c0, %c0], 8 : memref<16x16xf16> to memref<16x16xf16, #gpu.address_space<workgroup>>
    %group = nvgpu.device_async_create_group %token
    nvgpu.device_async_wait %group {numGroups = 0 : i32}
    gpu.barrier
    %a = nvgpu.ldmatrix %shared[%c0, %c0] {transpose = false, numTiles = 4 : i32} : memref<16x16xf16, #gpu.address_space<workgroup>> -> vector<4x2xf16>
    %b = nvgpu.ldmatrix %shared[%c0, %c0] {transpose = true, numTiles = 2 : i32} : memref<16x16xf16, #gpu.address_space<workgroup>> -> vector<2x2xf16>
    %zero = arith.constant dense<0.0> : vector<2x2xf32>
    %d = nvgpu.mma.sync(%a, %b, %zero) {mmaShape = [16, 8, 16]} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>) -> vector<2x2xf32>
    %first = vector.extract %d[0, 0] : f32 from vector<2x2xf32>
    memref.store %first, %y[%c0, %c0] : memref<16x8xf32>
    gpu.return
  }
}

gpu.module @looped {
  gpu.func @kernel(%x: memref<16x16xf16>, %shared: memref<16x16xf16, #gpu.address_space<workgroup>>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %token = nvgpu.device_async_copy %x[%c0, %c0], %shared[%c0, %c0], 8 : memref<16x16xf16> to memref<16x16xf16, #gpu.address_space<workgroup>>
    %group = nvgpu.device_async_create_group %token
    nvgpu.device_async_wait %group
    %zero = arith.constant 0.0 : f16
    %start = gpu.subgroup_mma_constant_matrix %zero : !gpu.mma_matrix<16x16xf16, "COp">
    %sum = scf.for %k = %c0 to %c4 step %c1 iter_args(%c = %start) -> !gpu.mma_matrix<16x16xf16, "COp"> {
      %a = gpu.subgroup_mma_load_matrix %x[%c0, %c0] {leadDimension = 16 : index} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "AOp">
      %b = gpu.subgroup_mma_load_matrix %x[%c0, %c0] {leadDimension = 16 : index} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "BOp">
      %d = gpu.subgroup_mma_compute %a, %b, %c : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp"> -> !gpu.mma_matrix<16x16xf16, "COp">
      scf.yield %d : !gpu.mma_matrix<16x16xf16, "COp">
    }
    gpu.subgroup_mma_store_matrix %sum, %x[%c0, %c0] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf16, "COp">, memref<16x16xf16>
    gpu.return
  }
}

}
