// Programs that are wrong: each function has one fault, or a result that is not defined.

func.func @behind() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %n = arith.constant 5 : index
  %p = gpu.alloc (%c4) : memref<?xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %c1, %sz = %c1)  {
    %i = arith.index_cast %tx : index to i32
    memref.store %i, %p[%tx] : memref<?xi32>
    gpu.terminator
  }
  %h = memref.alloc() : memref<4xi32>
  %hn = memref.cast %h : memref<4xi32> to memref<?xi32>
  gpu.memcpy %hn, %p : memref<?xi32>, memref<?xi32>
  %r = memref.load %h[%c0] : memref<4xi32>
  return %r : i32
}

func.func @freed() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %n = arith.constant 4 : index
  %p = gpu.alloc (%c4) : memref<?xi32>
  gpu.dealloc %p : memref<?xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %c1, %sz = %c1)  {
    %i = arith.index_cast %tx : index to i32
    memref.store %i, %p[%tx] : memref<?xi32>
    gpu.terminator
  }
  %h = memref.alloc() : memref<4xi32>
  %hn = memref.cast %h : memref<4xi32> to memref<?xi32>
  gpu.memcpy %hn, %p : memref<?xi32>, memref<?xi32>
  %r = memref.load %h[%c0] : memref<4xi32>
  return %r : i32
}

func.func @host_memory() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %n = arith.constant 4 : index
  %p = memref.alloc(%c4) : memref<?xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %c1, %sz = %c1)  {
    %i = arith.index_cast %tx : index to i32
    memref.store %i, %p[%tx] : memref<?xi32>
    gpu.terminator
  }
  return %zero : i32
}

func.func @workgroup() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %n = arith.constant 8 : index
  %p = gpu.alloc (%c4) : memref<?xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %c1, %sz = %c1) workgroup(%w : memref<4xi32, #gpu.address_space<workgroup>>) {
    %i = arith.index_cast %tx : index to i32
    memref.store %i, %w[%tx] : memref<4xi32, #gpu.address_space<workgroup>>
    gpu.barrier
    %v = memref.load %w[%c0] : memref<4xi32, #gpu.address_space<workgroup>>
    memref.store %v, %p[%c0] : memref<?xi32>
    gpu.terminator
  }
  %h = memref.alloc() : memref<4xi32>
  %hn = memref.cast %h : memref<4xi32> to memref<?xi32>
  gpu.memcpy %hn, %p : memref<?xi32>, memref<?xi32>
  %r = memref.load %h[%c0] : memref<4xi32>
  return %r : i32
}

// Not all threads of a subgroup reach the barrier.
func.func @divergent() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %n = arith.constant 32 : index
  %p = gpu.alloc (%c4) : memref<?xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %c1, %sz = %c1)  {
    %last = arith.constant 5 : index
    %is = arith.cmpi ult, %tx, %last : index
    scf.if %is {
      memref.store %zero, %p[%c0] : memref<?xi32>
      gpu.barrier
    }
    memref.store %zero, %p[%c1] : memref<?xi32>
    gpu.terminator
  }
  %h = memref.alloc() : memref<4xi32>
  %hn = memref.cast %h : memref<4xi32> to memref<?xi32>
  gpu.memcpy %hn, %p : memref<?xi32>, memref<?xi32>
  %r = memref.load %h[%c0] : memref<4xi32>
  return %r : i32
}

// Not all subgroups of the block reach it.
func.func @early() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %n = arith.constant 64 : index
  %p = gpu.alloc (%c4) : memref<?xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %c1, %sz = %c1)  {
    %last = arith.constant 32 : index
    %is = arith.cmpi ult, %tx, %last : index
    scf.if %is {
      memref.store %zero, %p[%c0] : memref<?xi32>
      gpu.barrier
    }
    memref.store %zero, %p[%c1] : memref<?xi32>
    gpu.terminator
  }
  %h = memref.alloc() : memref<4xi32>
  %hn = memref.cast %h : memref<4xi32> to memref<?xi32>
  gpu.memcpy %hn, %p : memref<?xi32>, memref<?xi32>
  %r = memref.load %h[%c0] : memref<4xi32>
  return %r : i32
}

// The host reads device memory.
func.func @touch() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %n = arith.constant 1 : index
  %p = gpu.alloc (%c4) : memref<?xi32>
  %r = memref.load %p[%c0] : memref<?xi32>
  return %r : i32
}

// The host does not wait for the kernel before it reads what that writes.
func.func @late() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0 : i32
  %five = arith.constant 5 : i32
  %p = memref.alloc() : memref<4xi32>
  memref.store %zero, %p[%c0] : memref<4xi32>
  %all = memref.cast %p : memref<4xi32> to memref<*xi32>
  gpu.host_register %all : memref<*xi32>
  %t = gpu.wait async
  %done = gpu.launch async [%t] blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    memref.store %five, %p[%tx] : memref<4xi32>
    gpu.terminator
  }
  %r = memref.load %p[%c0] : memref<4xi32>
  gpu.wait [%done]
  gpu.host_unregister %all : memref<*xi32>
  return %r : i32
}

// Nobody has written what is read.
func.func @uninitialized() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %n = arith.constant 1 : index
  %p = gpu.alloc (%c4) : memref<?xi32>
  %h = memref.alloc() : memref<4xi32>
  %hn = memref.cast %h : memref<4xi32> to memref<?xi32>
  gpu.memcpy %hn, %p : memref<?xi32>, memref<?xi32>
  %r = memref.load %h[%c0] : memref<4xi32>
  return %r : i32
}

// Several subgroups write one number.
func.func @race() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0 : i32
  %n = arith.constant 256 : index
  %p = gpu.alloc (%c4) : memref<?xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %c1, %sz = %c1)  {
    %i = arith.index_cast %tx : index to i32
    memref.store %i, %p[%c0] : memref<?xi32>
    gpu.terminator
  }
  %h = memref.alloc() : memref<4xi32>
  %hn = memref.cast %h : memref<4xi32> to memref<?xi32>
  gpu.memcpy %hn, %p : memref<?xi32>, memref<?xi32>
  %r = memref.load %h[%c0] : memref<4xi32>
  return %r : i32
}

// A subgroup reads what another writes into workgroup memory, without a barrier.
func.func @workgroup_race() -> i32 attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 64 : index
  %last = arith.constant 63 : index
  %p = gpu.alloc (%n) : memref<?xi32>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %n, %sy = %c1, %sz = %c1) workgroup(%w : memref<64xi32, #gpu.address_space<workgroup>>) {
    %i = arith.index_cast %tx : index to i32
    memref.store %i, %w[%tx] : memref<64xi32, #gpu.address_space<workgroup>>
    %other = arith.subi %last, %tx : index
    %v = memref.load %w[%other] : memref<64xi32, #gpu.address_space<workgroup>>
    memref.store %v, %p[%tx] : memref<?xi32>
    gpu.terminator
  }
  %h = memref.alloc(%n) : memref<?xi32>
  gpu.memcpy %h, %p : memref<?xi32>, memref<?xi32>
  %r = memref.load %h[%c0] : memref<?xi32>
  return %r : i32
}
