// Kernels that do not come to their end, or not all work-items of a block do.
module attributes {gpu.container_module} {
  gpu.module @device {
    gpu.func @asserts(%data: memref<?xi32>) kernel {
      %t = gpu.thread_id x
      %own = memref.load %data[%t] : memref<?xi32>
      %five = arith.constant 5 : i32
      %fits = arith.cmpi slt, %own, %five : i32
      cf.assert %fits, "data fits"
      gpu.return
    }

    // Whether a work-item waits depends on what it has loaded.
    gpu.func @parts(%data: memref<?xi32>) kernel {
      %t = gpu.thread_id x
      %own = memref.load %data[%t] : memref<?xi32>
      %five = arith.constant 5 : i32
      %waits = arith.cmpi slt, %own, %five : i32
      scf.if %waits {
        gpu.barrier
        memref.store %five, %data[%t] : memref<?xi32>
      }
      gpu.return
    }

    // The others have ended when the first six wait.
    gpu.func @leaves(%data: memref<?xi32>)
        workgroup(%line: memref<64xi32, #gpu.address_space<workgroup>>) kernel {
      %c5 = arith.constant 5 : index
      %t = gpu.thread_id x
      %stays = arith.cmpi ule, %t, %c5 : index
      scf.if %stays {
        %own = memref.load %data[%t] : memref<?xi32>
        memref.store %own, %line[%t] : memref<64xi32, #gpu.address_space<workgroup>>
        gpu.barrier
        %other = arith.subi %c5, %t : index
        %got = memref.load %line[%other] : memref<64xi32, #gpu.address_space<workgroup>>
        gpu.barrier
        memref.store %got, %data[%t] : memref<?xi32>
      }
      gpu.return
    }
  }
}
