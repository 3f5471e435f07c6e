// Classes of programs that others write: a transform script, main without a result, printMemrefF32, memref.realloc,
// a kernel of the LLVM dialect with gpu.kernel alone, an assertion that fails in the last launch.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    llvm.func @lowered(%p: !llvm.ptr, %v: f32) attributes {gpu.kernel} {
      llvm.store %v, %p : f32, !llvm.ptr
      llvm.return
    }
    func.func private @check(%n: index) {
      %c3 = arith.constant 3 : index
      %small = arith.cmpi ult, %n, %c3 : index
      cf.assert %small, "in a function, 100%"
      return
    }
    gpu.func @asserts(%limit: index) kernel {
      %i = gpu.thread_id x
      %below = arith.cmpi ult, %i, %limit : index
      gpu.printf "before %lld\n", %i : index
      cf.assert %below, "thread below the limit" loc(callsite("the_function"("a_file.mlir":7:9) at "caller.mlir":1:1))
      gpu.printf "after %lld\n", %i : index
      func.call @check(%i) : (index) -> ()
      gpu.return
    }
  }
  func.func @scaled(%x: memref<4xf32>, %y: memref<4xf32>) {
    %c2 = arith.constant 2.0 : f32
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {
    ^bb0(%a: f32, %b: f32):
      %m = arith.mulf %a, %c2 : f32
      linalg.yield %m : f32
    }
    return
  }
  func.func @main(%argc: i32, %argv: !llvm.ptr) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %f = arith.constant 2.5 : f32
    %m = gpu.alloc host_shared () : memref<4xf32>
    %small = memref.alloc(%c1) : memref<?xf32>
    %larger = memref.realloc %small(%c4) : memref<?xf32> to memref<?xf32>
    %y = memref.cast %larger : memref<?xf32> to memref<4xf32>
    scf.for %i = %c0 to %c4 step %c1 {
      %n = arith.index_cast %i : index to i32
      %v = arith.sitofp %n : i32 to f32
      memref.store %v, %m[%i] : memref<4xf32>
    }
    %address = memref.extract_aligned_pointer_as_index %m : memref<4xf32> -> index
    %number = arith.index_cast %address : index to i64
    %p = llvm.inttoptr %number : i64 to !llvm.ptr
    gpu.launch_func @kernels::@lowered blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%p : !llvm.ptr, %f : f32)
    func.call @scaled(%m, %y) : (memref<4xf32>, memref<4xf32>) -> ()
    %u = memref.cast %y : memref<4xf32> to memref<*xf32>
    func.call @printMemrefF32(%u) : (memref<*xf32>) -> ()
    %one = arith.constant 1 : i32
    %fails = arith.cmpi sgt, %argc, %one : i32
    %limit = arith.select %fails, %c1, %c4 : index
    %threads = arith.constant 3 : index
    gpu.launch_func @kernels::@asserts blocks in (%c1, %c1, %c1) threads in (%threads, %c1, %c1) args(%limit : index)
    return
  }
  func.func private @printMemrefF32(memref<*xf32>)
  module attributes {transform.with_named_sequence} {
    transform.named_sequence @__transform_main(%root: !transform.any_op {transform.readonly}) {
      %op = transform.structured.match ops{["linalg.generic"]} in %root : (!transform.any_op) -> !transform.any_op
      %loops:1 = transform.structured.convert_to_loops %op : (!transform.any_op) -> !transform.any_op
      transform.yield
    }
  }
}
