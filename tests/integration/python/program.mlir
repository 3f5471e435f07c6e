module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @add(%x: memref<?xf32>, %a: f32, %limit: f32) kernel {
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %size = gpu.block_dim x
      %begin = arith.muli %block, %size : index
      %i = arith.addi %begin, %thread : index
      %old = memref.load %x[%i] : memref<?xf32>
      %small = arith.cmpf olt, %old, %limit : f32
      cf.assert %small, "too large"
      %new = arith.addf %old, %a : f32
      memref.store %new, %x[%i] : memref<?xf32>
      gpu.return
    }
  }
  func.func @add(%x: memref<?xf32>, %a: f32, %limit: f32, %blocks: index, %threads: index)
      attributes {llvm.emit_c_interface} {
    %c1 = arith.constant 1 : index
    gpu.launch_func @kernels::@add blocks in (%blocks, %c1, %c1) threads in (%threads, %c1, %c1)
        args(%x : memref<?xf32>, %a : f32, %limit : f32)
    return
  }
  // More arguments of each class than there are registers.
  func.func @mix(%a: i8, %b: f32, %c: i64, %d: f64, %e: i1, %f: i16, %g: f16, %h: i64, %i: f64,
                 %j: f64, %k: f64, %l: f64, %m: f32, %n: i32, %o: f32, %p: i64, %q: f64) -> f64
      attributes {llvm.emit_c_interface} {
    %w0 = arith.sitofp %a : i8 to f64
    %w1 = arith.extf %b : f32 to f64
    %w2 = arith.sitofp %f : i16 to f64
    %w3 = arith.extf %g : f16 to f64
    %w4 = arith.extf %m : f32 to f64
    %w5 = arith.sitofp %n : i32 to f64
    %w6 = arith.extf %o : f32 to f64
    %w7 = arith.sitofp %p : i64 to f64
    %w8 = arith.uitofp %e : i1 to f64
    %s0 = arith.addf %w0, %w1 : f64
    %s1 = arith.addf %s0, %w2 : f64
    %s2 = arith.addf %s1, %w3 : f64
    %s3 = arith.addf %s2, %w4 : f64
    %s4 = arith.addf %s3, %w5 : f64
    %s5 = arith.addf %s4, %w6 : f64
    %s6 = arith.addf %s5, %w7 : f64
    %s7 = arith.addf %s6, %w8 : f64
    %s8 = arith.mulf %s7, %q : f64
    return %s8 : f64
  }
  func.func @half(%a: f32) -> f16 attributes {llvm.emit_c_interface} {
    %h = arith.truncf %a : f32 to f16
    return %h : f16
  }
  func.func @same(%x: memref<?xf32>) -> memref<?xf32> attributes {llvm.emit_c_interface} {
    return %x : memref<?xf32>
  }
}
