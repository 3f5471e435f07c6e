module attributes {gpu.container_module} {
  gpu.module @early {
    // Threads beyond the limit return in front of the barrier.
    gpu.func @reverse(%data: memref<?xi32>, %limit: index)
        workgroup(%line: memref<1024xi32, #gpu.address_space<workgroup>>) kernel {
      %t = gpu.thread_id x
      %inside = arith.cmpi ult, %t, %limit : index
      cf.cond_br %inside, ^work, ^end
    ^work:
      %c1 = arith.constant 1 : index
      %own = memref.load %data[%t] : memref<?xi32>
      memref.store %own, %line[%t] : memref<1024xi32, #gpu.address_space<workgroup>>
      gpu.barrier
      %last = arith.subi %limit, %c1 : index
      %other = arith.subi %last, %t : index
      %got = memref.load %line[%other] : memref<1024xi32, #gpu.address_space<workgroup>>
      memref.store %got, %data[%t] : memref<?xi32>
      cf.br ^end
    ^end:
      gpu.return
    }

    // Lanes at or above the limit do not take part in the exchange.
    gpu.func @partial(%data: memref<?xi32>, %limit: index) kernel {
      %t = gpu.thread_id x
      %width = arith.constant 32 : i32
      %one = arith.constant 1 : i32
      %inside = arith.cmpi ult, %t, %limit : index
      scf.if %inside {
        %own = memref.load %data[%t] : memref<?xi32>
        %far, %valid = gpu.shuffle xor %own, %one, %width : i32
        %sum = arith.addi %own, %far : i32
        memref.store %sum, %data[%t] : memref<?xi32>
      }
      gpu.return
    }
  }
}
