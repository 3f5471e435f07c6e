// Operations without a lowering of their own to NVVM.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @ids(%out: memref<?xindex>) kernel {
      %i = gpu.global_id x
      %size = gpu.subgroup_size : index
      %id = gpu.subgroup_id : index
      %count = gpu.num_subgroups : index
      %sum = arith.addi %size, %id : index
      %all = arith.addi %sum, %count : index
      memref.store %all, %out[%i] : memref<?xindex>
      gpu.return
    }
    gpu.func @reduce(%value: f32, %out: memref<?xf32>) kernel {
      %i = gpu.thread_id x
      %sum = gpu.subgroup_reduce add %value : (f32) -> f32
      %total = gpu.all_reduce add %sum uniform {} : (f32) -> f32
      memref.store %total, %out[%i] : memref<?xf32>
      gpu.return
    }
  }
  gpu.module @uniform {
    gpu.func @reduce_i32(%value: i32, %out: memref<?xi32>) kernel {
      %i = gpu.thread_id x
      %sum = gpu.subgroup_reduce add %value uniform : (i32) -> i32
      memref.store %sum, %out[%i] : memref<?xi32>
      gpu.return
    }
  }
}
