// GPU modules as MLIR lowers them, for NVVM and, unless `only=nvptx`, for ROCDL. Both releases parse them.
//--- saxpy
gpu.module @kernels {
  gpu.func @saxpy(%n: index, %a: f32, %x: memref<?xf32>, %y: memref<?xf32>) kernel {
    %block = gpu.block_id x
    %size = gpu.block_dim x
    %thread = gpu.thread_id x
    %begin = arith.muli %block, %size : index
    %i = arith.addi %begin, %thread : index
    %inside = arith.cmpi ult, %i, %n : index
    scf.if %inside {
      %u = memref.load %x[%i] : memref<?xf32>
      %v = memref.load %y[%i] : memref<?xf32>
      %w = arith.mulf %a, %u : f32
      %sum = arith.addf %w, %v : f32
      memref.store %sum, %y[%i] : memref<?xf32>
    }
    gpu.return
  }
}
//--- plain
gpu.module @kernels {
  gpu.func @plain(%x: memref<16xf32>, %v: f32) kernel {
    %zero = arith.constant 0 : index
    memref.store %v, %x[%zero] : memref<16xf32>
    gpu.return
  }
}
//--- shared
gpu.module @kernels {
  gpu.func @shared(%x: memref<64xf32>) workgroup(%tile: memref<64xf32, 3>) kernel {
    %i = gpu.thread_id x
    %last = arith.constant 63 : index
    %j = arith.subi %last, %i : index
    %v = memref.load %x[%i] : memref<64xf32>
    memref.store %v, %tile[%i] : memref<64xf32, 3>
    gpu.barrier
    %w = memref.load %tile[%j] : memref<64xf32, 3>
    memref.store %w, %x[%i] : memref<64xf32>
    gpu.return
  }
}
//--- shuffle
gpu.module @kernels {
  gpu.func @shuffle(%x: memref<64xf32>) kernel {
    %i = gpu.thread_id x
    %offset = arith.constant 1 : i32
    %width = arith.constant 32 : i32
    %v = memref.load %x[%i] : memref<64xf32>
    %w, %valid = gpu.shuffle xor %v, %offset, %width : f32
    memref.store %w, %x[%i] : memref<64xf32>
    gpu.return
  }
}
//--- math
gpu.module @kernels {
  gpu.func @math(%x: memref<64xf32>, %y: memref<64xf64>) kernel {
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<64xf32>
    %a = math.exp %v : f32
    %b = math.sqrt %a : f32
    %c = math.tanh %b : f32
    memref.store %c, %x[%i] : memref<64xf32>
    %d = memref.load %y[%i] : memref<64xf64>
    %e = math.cos %d : f64
    memref.store %e, %y[%i] : memref<64xf64>
    gpu.return
  }
}
//--- atomic
gpu.module @kernels {
  gpu.func @atomic(%x: memref<64xf32>, %n: memref<1xi32>) kernel {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : i32
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<64xf32>
    %a = memref.atomic_rmw addf %v, %x[%zero] : (f32, memref<64xf32>) -> f32
    %b = memref.atomic_rmw maxs %one, %n[%zero] : (i32, memref<1xi32>) -> i32
    gpu.return
  }
}
//--- known_block
gpu.module @kernels {
  gpu.func @known_block(%x: memref<64xf32>, %v: f32) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %i = gpu.thread_id x
    memref.store %v, %x[%i] : memref<64xf32>
    gpu.return
  }
}
//--- bounds only=nvptx
gpu.module @kernels {
  gpu.func @bounds(%x: memref<64xf32>, %v: f32) kernel attributes {nvvm.maxntid = array<i32: 128, 2, 1>, nvvm.minctasm = 2 : i32, nvvm.maxnreg = 64 : i32} {
    %i = gpu.thread_id x
    memref.store %v, %x[%i] : memref<64xf32>
    gpu.return
  }
}
//--- vector
gpu.module @kernels {
  gpu.func @vector(%x: memref<64xf32>) kernel {
    %zero = arith.constant 0 : index
    %pad = arith.constant 0.0 : f32
    %i = gpu.thread_id x
    %v = vector.transfer_read %x[%i], %pad : memref<64xf32>, vector<4xf32>
    %two = arith.constant dense<2.0> : vector<4xf32>
    %w = arith.mulf %v, %two : vector<4xf32>
    vector.transfer_write %w, %x[%i] : vector<4xf32>, memref<64xf32>
    gpu.return
  }
}
//--- maximum
gpu.module @kernels {
  gpu.func @maximum(%x: memref<64xf32>) kernel {
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<64xf32>
    %zero = arith.constant 0.0 : f32
    %w = arith.maximumf %v, %zero : f32
    memref.store %w, %x[%i] : memref<64xf32>
    gpu.return
  }
}
//--- half
gpu.module @kernels {
  gpu.func @half(%x: memref<64xf16>, %y: memref<64xf32>) kernel {
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<64xf16>
    %w = arith.addf %v, %v : f16
    memref.store %w, %x[%i] : memref<64xf16>
    %u = arith.extf %w : f16 to f32
    memref.store %u, %y[%i] : memref<64xf32>
    gpu.return
  }
}
//--- reduce
gpu.module @kernels {
  gpu.func @reduce(%x: memref<64xf32>) kernel {
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<64xf32>
    %sum = gpu.all_reduce add %v uniform {} : (f32) -> f32
    memref.store %sum, %x[%i] : memref<64xf32>
    gpu.return
  }
}
//--- switch
gpu.module @kernels {
  func.func @helper(%v: i64) -> i64 {
    %c = arith.constant 7 : i64
    %w = arith.divsi %v, %c : i64
    return %w : i64
  }
  gpu.func @switch(%x: memref<64xi64>) kernel {
    %i = gpu.thread_id x
    %grid = gpu.grid_dim y
    %v = memref.load %x[%i] : memref<64xi64>
    %w = func.call @helper(%v) : (i64) -> i64
    %g = arith.index_cast %grid : index to i64
    %u = arith.addi %w, %g : i64
    memref.store %u, %x[%i] : memref<64xi64>
    gpu.return
  }
}
//--- mma only=nvptx
gpu.module @kernels {
  gpu.func @mma(%x: memref<16x16xf16>, %y: memref<16x16xf32>) kernel {
    %zero = arith.constant 0 : index
    %a = gpu.subgroup_mma_load_matrix %x[%zero, %zero] {leadDimension = 16 : index} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "AOp">
    %b = gpu.subgroup_mma_load_matrix %x[%zero, %zero] {leadDimension = 16 : index} : memref<16x16xf16> -> !gpu.mma_matrix<16x16xf16, "BOp">
    %c = gpu.subgroup_mma_load_matrix %y[%zero, %zero] {leadDimension = 16 : index} : memref<16x16xf32> -> !gpu.mma_matrix<16x16xf32, "COp">
    %d = gpu.subgroup_mma_compute %a, %b, %c : !gpu.mma_matrix<16x16xf16, "AOp">, !gpu.mma_matrix<16x16xf16, "BOp"> -> !gpu.mma_matrix<16x16xf32, "COp">
    gpu.subgroup_mma_store_matrix %d, %y[%zero, %zero] {leadDimension = 16 : index} : !gpu.mma_matrix<16x16xf32, "COp">, memref<16x16xf32>
    gpu.return
  }
}
