// One kernel, written for each GPU with what only that GPU has.
module attributes {gpu.container_module} {
  gpu.module @plain [#nvvm.target<chip = "sm_80">] {
    gpu.func @k(%p: !llvm.ptr, %a: f32) kernel {
      llvm.store %a, %p : f32, !llvm.ptr
      gpu.return
    }
  }
  gpu.module @hopper [#nvvm.target<chip = "sm_90a">] {
    gpu.func @k(%p: !llvm.ptr, %a: f32) kernel {
      nvvm.setmaxregister increase 40
      llvm.store %a, %p : f32, !llvm.ptr
      gpu.return
    }
  }
  gpu.module @blackwell [#nvvm.target<chip = "sm_100a">] {
    gpu.func @k(%p: !llvm.ptr, %a: f32) kernel {
      nvvm.tcgen05.relinquish_alloc_permit
      llvm.store %a, %p : f32, !llvm.ptr
      gpu.return
    }
  }
  gpu.module @cdna [#rocdl.target<chip = "gfx90a">] {
    gpu.func @k(%p: !llvm.ptr, %a: f32) kernel {
      llvm.store %a, %p : f32, !llvm.ptr
      gpu.return
    }
  }
  gpu.module @rdna [#rocdl.target<chip = "gfx1100">] {
    gpu.func @k(%p: !llvm.ptr, %a: f32) kernel {
      %h = arith.constant dense<1.0> : vector<16xf16>
      %c = arith.constant dense<0.0> : vector<8xf32>
      %r = rocdl.wmma.f32.16x16x16.f16 %h, %h, %c : (vector<16xf16>, vector<16xf16>, vector<8xf32>) -> vector<8xf32>
      llvm.store %r, %p : vector<8xf32>, !llvm.ptr
      gpu.return
    }
  }
  func.func @run(%p: !llvm.ptr, %a: f32) {
    %one = arith.constant 1 : index
    gpu.launch_func @plain::@k blocks in (%one, %one, %one) threads in (%one, %one, %one) args(%p : !llvm.ptr, %a : f32)
    return
  }
}
