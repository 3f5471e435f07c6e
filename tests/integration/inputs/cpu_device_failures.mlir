// Kernels that do not come to their end, or not all threads of a block do.
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

    // Whether a thread waits depends on what it has loaded.
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

    // All that fail are told before the barrier, behind which nobody comes.
    gpu.func @guarded(%data: memref<?xi32>) kernel {
      %t = gpu.thread_id x
      %own = memref.load %data[%t] : memref<?xi32>
      %five = arith.constant 5 : i32
      %fits = arith.cmpi slt, %own, %five : i32
      cf.assert %fits, "fits before the barrier"
      gpu.barrier
      memref.store %five, %data[%t] : memref<?xi32>
      gpu.return
    }

    // Each thread is a fiber; the others of its subgroup go on without it.
    gpu.func @votes(%data: memref<?xi32>) kernel {
      %t = gpu.thread_id x
      %own = memref.load %data[%t] : memref<?xi32>
      %five = arith.constant 5 : i32
      %fits = arith.cmpi slt, %own, %five : i32
      %width = arith.constant 32 : i32
      %other, %valid = gpu.shuffle xor %own, %five, %width : i32
      cf.assert %fits, "fits in the subgroup"
      %c64 = arith.constant 64 : index
      %place = arith.addi %t, %c64 : index
      memref.store %other, %data[%place] : memref<?xi32>
      gpu.return
    }
  }
}
