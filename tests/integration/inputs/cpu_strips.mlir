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

    // What is in a strip compares as its first thread with a multiple of the strip's size, and only so.
    gpu.func @compare(%data: memref<?xi32>, %mask: i32) kernel {
      %c1 = arith.constant 1 : i32
      %c3 = arith.constant 3 : i32
      %c5 = arith.constant 5 : i32
      %c31 = arith.constant 31 : i32
      %c32 = arith.constant 32 : i32
      %c64 = arith.constant 64 : i32
      %c128 = arith.constant 128 : i32
      %small = arith.constant 32 : i8
      %row = arith.constant 32 : index
      %thread = gpu.thread_id x
      %size = gpu.block_dim x
      %t = arith.index_cast %thread : index to i32
      %n = arith.index_cast %size : index to i32
      %byte = arith.index_cast %thread : index to i8
      %partner = arith.xori %t, %mask : i32
      %near = arith.xori %t, %c3 : i32
      %far = arith.addi %t, %c64 : i32
      %beyond = arith.xori %far, %mask : i32
      %exists = arith.cmpi ult, %partner, %n : i32
      %behind = arith.cmpi ugt, %near, %c31 : i32
      %inside = arith.cmpi ugt, %near, %c5 : i32
      %few = arith.cmpi ult, %near, %c3 : i32
      %other, %valid = gpu.shuffle xor %beyond, %c1, %c32 : i32
      %below = arith.cmpi slt, %beyond, %c128 : i32
      %short = arith.cmpi slt, %byte, %small : i8
      %begins = arith.cmpi ult, %thread, %row : index
      %sum = scf.if %begins -> (i32) {
        %added = arith.addi %other, %c64 : i32
        scf.yield %added : i32
      } else {
        scf.yield %other : i32
      }
      %bits0 = arith.extui %exists : i1 to i32
      %bits1 = arith.extui %below : i1 to i32
      %bits2 = arith.extui %behind : i1 to i32
      %bits3 = arith.extui %short : i1 to i32
      %bits4 = arith.extui %inside : i1 to i32
      %c2 = arith.constant 2 : i32
      %all1 = arith.muli %sum, %c2 : i32
      %all2 = arith.addi %all1, %bits0 : i32
      %all3 = arith.muli %all2, %c2 : i32
      %all4 = arith.addi %all3, %bits1 : i32
      %all5 = arith.muli %all4, %c2 : i32
      %all6 = arith.addi %all5, %bits2 : i32
      %all7 = arith.muli %all6, %c2 : i32
      %all8 = arith.addi %all7, %bits3 : i32
      %all9 = arith.muli %all8, %c2 : i32
      %all10 = arith.addi %all9, %bits4 : i32
      %all11 = arith.muli %all10, %c2 : i32
      %bits5 = arith.extui %few : i1 to i32
      %all = arith.addi %all11, %bits5 : i32
      memref.store %all, %data[%thread] : memref<?xi32>
      gpu.return
    }
  }
}
