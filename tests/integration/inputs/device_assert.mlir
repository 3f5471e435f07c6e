module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @check(%buffer: memref<?xf32>, %limit: index) kernel {
      %i = gpu.thread_id x
      %inside = arith.cmpi ult, %i, %limit : index
      cf.assert %inside, "index \"out\" of range"
      %value = memref.load %buffer[%i] : memref<?xf32>
      cf.cond_br %inside, ^store, ^done
    ^store:
      cf.assert %inside, "second"
      memref.store %value, %buffer[%i] : memref<?xf32>
      cf.br ^done
    ^done:
      gpu.return
    }
  }
  func.func @main(%n: index) {
    %c0 = arith.constant 0 : index
    %positive = arith.cmpi sgt, %n, %c0 : index
    cf.assert %positive, "on the host"
    return
  }
}
