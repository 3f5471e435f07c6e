module attributes {gpu.container_module} {
  gpu.module @m {
    gpu.func @k(%a: memref<?xf32>, %b: memref<?xf16>) kernel {
      %t = gpu.thread_id x
      %x = memref.load %a[%t] : memref<?xf32>
      %sum = gpu.subgroup_reduce add %x : (f32) -> f32
      memref.store %sum, %a[%t] : memref<?xf32>
      %y = memref.load %b[%t] : memref<?xf16>
      %most = gpu.subgroup_reduce maxnumf %y : (f16) -> f16
      memref.store %most, %b[%t] : memref<?xf16>
      %count = gpu.num_subgroups : index
      %number = gpu.subgroup_id : index
      %size = gpu.subgroup_size : index
      %all = gpu.all_reduce add %x uniform {} : (f32) -> f32
      %stack = memref.alloca() : memref<4xf32>
      memref.store %all, %stack[%number] : memref<4xf32>
      %again = memref.load %stack[%count] : memref<4xf32>
      memref.store %again, %a[%size] : memref<?xf32>
      %ok = arith.cmpi slt, %count, %t : index
      cf.assert %ok, "100% of it"
      gpu.return
    }
  }
}
