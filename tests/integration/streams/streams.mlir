// What the tests of streams call from streams.c.
module attributes {gpu.container_module} {

gpu.module @kernels {
  gpu.func @left(%x: memref<64xf32>, %a: f32) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %i = gpu.thread_id x
    %old = memref.load %x[%i] : memref<64xf32>
    gpu.barrier
    %new = arith.mulf %old, %a : f32
    memref.store %new, %x[%i] : memref<64xf32>
    gpu.return
  }
  gpu.func @right(%x: memref<64xf32>, %a: f32) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %i = gpu.thread_id x
    %old = memref.load %x[%i] : memref<64xf32>
    %new = arith.addf %old, %a : f32
    memref.store %new, %x[%i] : memref<64xf32>
    gpu.return
  }
  gpu.func @both(%x: memref<64xf32>, %y: memref<64xf32>) kernel attributes {known_block_size = array<i32: 64, 1, 1>} {
    %i = gpu.thread_id x
    %a = memref.load %x[%i] : memref<64xf32>
    %b = memref.load %y[%i] : memref<64xf32>
    %new = arith.subf %a, %b : f32
    memref.store %new, %x[%i] : memref<64xf32>
    gpu.return
  }
}

// Two chains of copies and kernels that do not depend on each other, and a third that depends on both.
// Memory is allocated and freed in the chains.
func.func @overlap(%x: memref<64xf32>, %y: memref<64xf32>, %z: memref<64xf32>, %w: memref<64xf32>)
    attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %three = arith.constant 3.0 : f32

  %a0 = gpu.wait async
  %a, %a1 = gpu.alloc async [%a0] () : memref<64xf32>
  %a2 = gpu.memcpy async [%a1] %a, %x : memref<64xf32>, memref<64xf32>
  %a3 = gpu.launch_func async [%a2] @kernels::@left
      blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%a : memref<64xf32>, %three : f32)
  %a4 = gpu.memcpy async [%a3] %z, %a : memref<64xf32>, memref<64xf32>
  %a5 = gpu.dealloc async [%a4] %a : memref<64xf32>

  %b0 = gpu.wait async
  %b, %b1 = gpu.alloc async [%b0] () : memref<64xf32>
  %b2 = gpu.memcpy async [%b1] %b, %y : memref<64xf32>, memref<64xf32>
  %b3 = gpu.launch_func async [%b2] @kernels::@right
      blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%b : memref<64xf32>, %three : f32)
  %b4 = gpu.memcpy async [%b3] %w, %b : memref<64xf32>, memref<64xf32>
  %b5 = gpu.dealloc async [%b4] %b : memref<64xf32>

  %j0 = gpu.wait async [%a5, %b5]
  %j, %j1 = gpu.alloc async [%j0] () : memref<64xf32>
  %k, %j2 = gpu.alloc async [%j1] () : memref<64xf32>
  %j3 = gpu.memcpy async [%j2] %j, %z : memref<64xf32>, memref<64xf32>
  %j4 = gpu.memcpy async [%j3] %k, %w : memref<64xf32>, memref<64xf32>
  %j5 = gpu.launch_func async [%j4] @kernels::@both
      blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%j : memref<64xf32>, %k : memref<64xf32>)
  %j6 = gpu.memcpy async [%j5] %x, %j : memref<64xf32>, memref<64xf32>
  %j7 = gpu.dealloc async [%j6] %j : memref<64xf32>
  %j8 = gpu.dealloc async [%j7] %k : memref<64xf32>
  gpu.wait [%j8]
  return
}

// Work on the stream of a caller.
func.func @on_token(%stream: !gpu.async.token, %x: memref<64xf32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %three = arith.constant 3.0 : f32
  %a, %t1 = gpu.alloc async [%stream] () : memref<64xf32>
  %t2 = gpu.memcpy async [%t1] %a, %x : memref<64xf32>, memref<64xf32>
  %t3 = gpu.launch_func async [%t2] @kernels::@left
      blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%a : memref<64xf32>, %three : f32)
  %t4 = gpu.memcpy async [%t3] %x, %a : memref<64xf32>, memref<64xf32>
  %t5 = gpu.dealloc async [%t4] %a : memref<64xf32>
  gpu.wait [%t5]
  return
}

// Two streams of a caller meet: what follows waits for both.
func.func @join(%one: !gpu.async.token, %other: !gpu.async.token, %x: memref<64xf32>)
    attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %three = arith.constant 3.0 : f32
  %t0 = gpu.wait async [%one, %other]
  %t1 = gpu.launch_func async [%t0] @kernels::@left
      blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%x : memref<64xf32>, %three : f32)
  gpu.wait [%t1]
  return
}

// Work on streams of its own, or on that of the calling thread.
func.func @plain(%x: memref<64xf32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %three = arith.constant 3.0 : f32
  %a = gpu.alloc () : memref<64xf32>
  gpu.memcpy %a, %x : memref<64xf32>, memref<64xf32>
  gpu.launch_func @kernels::@left
      blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%a : memref<64xf32>, %three : f32)
  gpu.memcpy %x, %a : memref<64xf32>, memref<64xf32>
  gpu.dealloc %a : memref<64xf32>
  return
}

// The stream stands with the launch, which waits for another one.
func.func @explicit(%stream: !llvm.ptr, %x: memref<64xf32>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c64 = arith.constant 64 : index
  %three = arith.constant 3.0 : f32
  %before = gpu.wait async
  %t = gpu.launch_func async [%before] @kernels::@right
      blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%x : memref<64xf32>, %three : f32)
  gpu.launch_func [%t] <%stream : !llvm.ptr> @kernels::@left
      blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%x : memref<64xf32>, %three : f32)
  return
}

}
