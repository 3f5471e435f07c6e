module attributes {gpu.container_module} {
  gpu.module @exchange {
    // Pairs of threads order their elements, in workgroup memory.
    gpu.func @order(%x: memref<?xi32>, %distance: i32)
        workgroup(%s: memref<256xi32, #gpu.address_space<workgroup>>) kernel {
      %t = gpu.thread_id x
      %v = memref.load %x[%t] : memref<?xi32>
      memref.store %v, %s[%t] : memref<256xi32, #gpu.address_space<workgroup>>
      gpu.barrier
      %n = arith.index_cast %t : index to i32
      %o = arith.xori %n, %distance : i32
      %other = arith.index_cast %o : i32 to index
      %is_first = arith.cmpi ult, %n, %o : i32
      scf.if %is_first {
        %a = memref.load %s[%t] : memref<256xi32, #gpu.address_space<workgroup>>
        %b = memref.load %s[%other] : memref<256xi32, #gpu.address_space<workgroup>>
        %is_wrong = arith.cmpi sgt, %a, %b : i32
        scf.if %is_wrong {
          memref.store %b, %s[%t] : memref<256xi32, #gpu.address_space<workgroup>>
          memref.store %a, %s[%other] : memref<256xi32, #gpu.address_space<workgroup>>
        }
      }
      gpu.barrier
      %w = memref.load %s[%t] : memref<256xi32, #gpu.address_space<workgroup>>
      memref.store %w, %x[%t] : memref<?xi32>
      gpu.return
    }

    // The index of a global element of 64 bits contains two distances and an offset; both accesses exchange.
    gpu.func @mirror(%x: memref<?xi64>, %y: memref<?xi64>, %distance: index, %offset: index) kernel {
      %b = gpu.block_id x
      %d = gpu.block_dim x
      %t = gpu.thread_id x
      %c3 = arith.constant 3 : index
      %first = arith.muli %b, %d : index
      %i = arith.addi %first, %t : index
      %near = arith.xori %i, %c3 : index
      %other = arith.xori %near, %distance : index
      %from = arith.addi %other, %offset : index
      %v = memref.load %x[%from] : memref<?xi64>
      memref.store %v, %y[%near] : memref<?xi64>
      gpu.return
    }
  }
}
