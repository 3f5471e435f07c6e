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

    // Thread i leaves the loop in iteration i, so that threads of several iterations meet after it.
    gpu.func @leave_loop(%data: memref<?xi32>) kernel {
      %t = gpu.thread_id x
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c9 = arith.constant 9 : index
      %hundred = arith.constant 100 : i32
      cf.br ^head(%c0 : index)
    ^head(%i: index):
      %more = arith.cmpi ult, %i, %c9 : index
      cf.cond_br %more, ^work, ^after
    ^work:
      %j = arith.index_cast %i : index to i32
      %v = memref.load %data[%t] : memref<?xi32>
      %v1 = arith.addi %v, %j : i32
      memref.store %v1, %data[%t] : memref<?xi32>
      %leaves = arith.cmpi eq, %t, %i : index
      cf.cond_br %leaves, ^found, ^next
    ^found:
      %w = memref.load %data[%t] : memref<?xi32>
      %w1 = arith.addi %w, %hundred : i32
      memref.store %w1, %data[%t] : memref<?xi32>
      cf.br ^after
    ^next:
      %i1 = arith.addi %i, %c1 : index
      cf.br ^head(%i1 : index)
    ^after:
      %x = memref.load %data[%t] : memref<?xi32>
      %sum = gpu.subgroup_reduce add %x : (i32) -> i32
      memref.store %sum, %data[%t] : memref<?xi32>
      gpu.return
    }

    // One thread executes loops, branches and a division that is only defined in it.
    gpu.func @one_thread(%data: memref<?xi32>, %number: i32) kernel {
      %t = gpu.thread_id x
      %n = arith.index_cast %t : index to i32
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %x = memref.load %data[%t] : memref<?xi32>
      %sum = gpu.subgroup_reduce add %x : (i32) -> i32
      %is_it = arith.cmpi eq, %n, %number : i32
      scf.if %is_it {
        %small = arith.cmpi slt, %x, %number : i32
        scf.if %small {
          memref.store %number, %data[%t] : memref<?xi32>
        } else {
          scf.for %k = %c0 to %t step %c1 {
            %old = memref.load %data[%t] : memref<?xi32>
            %new = arith.addi %old, %sum : i32
            memref.store %new, %data[%t] : memref<?xi32>
          }
        }
        %last = memref.load %data[%t] : memref<?xi32>
        %quotient = arith.divsi %last, %number : i32
        memref.store %quotient, %data[%t] : memref<?xi32>
      }
      gpu.return
    }

    // One lane of each subgroup stores.
    gpu.func @one_lane(%data: memref<?xi32>, %number: index) kernel {
      %t = gpu.thread_id x
      %lane = gpu.lane_id
      %x = memref.load %data[%t] : memref<?xi32>
      %sum = gpu.subgroup_reduce add %x : (i32) -> i32
      %is_it = arith.cmpi eq, %lane, %number : index
      scf.if %is_it {
        memref.store %sum, %data[%t] : memref<?xi32>
      }
      gpu.return
    }
  }
}
