// What host code does with the gpu dialect: each function leaves numbers in its argument, prints, or fails.
module attributes {gpu.container_module} {
func.func @copies(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %word = arith.constant 305419896 : i32
  %half = arith.constant -2 : i16
  %float = arith.constant 1.5 : f32
  %device0 = arith.constant 0 : i32
  gpu.set_default_device %device0
  %a = gpu.alloc(%c4) : memref<?xi32, 1>
  gpu.memset %a, %word : memref<?xi32, 1>, i32
  %host = memref.alloc() : memref<4xi32>
  %host_n = memref.cast %host : memref<4xi32> to memref<?xi32>
  gpu.memcpy %host_n, %a : memref<?xi32>, memref<?xi32, 1>
  %r0 = memref.load %host[%c2] : memref<4xi32>
  gpu.dealloc %a : memref<?xi32, 1>
  memref.dealloc %host : memref<4xi32>
  // In a chain of tokens.
  %t0 = gpu.wait async
  %b, %t1 = gpu.alloc async [%t0] () : memref<4xi16>
  %t2 = gpu.memset async [%t1] %b, %half : memref<4xi16>, i16
  %halves = memref.alloc() : memref<4xi16>
  %t3 = gpu.memcpy async [%t2] %halves, %b : memref<4xi16>, memref<4xi16>
  %t4 = gpu.dealloc async [%t3] %b : memref<4xi16>
  gpu.wait [%t4]
  %r1 = memref.load %halves[%c1] : memref<4xi16>
  memref.dealloc %halves : memref<4xi16>
  // Shared with the host.
  %s = gpu.alloc host_shared () : memref<2x4xf32>
  gpu.memset %s, %float : memref<2x4xf32>, f32
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c4, %sy = %c2, %sz = %c1) {
    %v = memref.load %s[%ty, %tx] : memref<2x4xf32>
    %n = arith.addi %tx, %ty : index
    %i = arith.index_cast %n : index to i32
    %f = arith.sitofp %i : i32 to f32
    %sum = arith.addf %v, %f : f32
    memref.store %sum, %s[%ty, %tx] : memref<2x4xf32>
    gpu.terminator
  }
  %c3 = arith.constant 3 : index
  %shared = memref.load %s[%c1, %c3] : memref<2x4xf32>
  gpu.dealloc %s : memref<2x4xf32>
  %two = arith.constant 2.0 : f32
  %twice = arith.mulf %shared, %two : f32
  %r2 = arith.fptosi %twice : f32 to i64
  // Registered memory, of which a part is strided.
  %m = memref.alloc() : memref<4x8xi64>
  %part = memref.subview %m[1, 2] [2, 3] [1, 2] : memref<4x8xi64> to memref<2x3xi64, strided<[8, 2], offset: 10>>
  %any = memref.cast %part : memref<2x3xi64, strided<[8, 2], offset: 10>> to memref<*xi64>
  gpu.host_register %any : memref<*xi64>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c3, %sy = %c2, %sz = %c1) {
    %ten = arith.constant 10 : index
    %row = arith.muli %ty, %ten : index
    %n = arith.addi %row, %tx : index
    %i = arith.index_cast %n : index to i64
    memref.store %i, %part[%ty, %tx] : memref<2x3xi64, strided<[8, 2], offset: 10>>
    gpu.terminator
  }
  gpu.host_unregister %any : memref<*xi64>
  %c6 = arith.constant 6 : index
  %r3 = memref.load %m[%c2, %c6] : memref<4x8xi64>
  memref.dealloc %m : memref<4x8xi64>
  %w0 = arith.extsi %r0 : i32 to i64
  %w1 = arith.extsi %r1 : i16 to i64
  memref.store %w0, %out[%c0] : memref<?xi64>
  memref.store %w1, %out[%c1] : memref<?xi64>
  memref.store %r2, %out[%c2] : memref<?xi64>
  memref.store %r3, %out[%c3] : memref<?xi64>
  return
}

// A part of a memref to another: no one copy of bytes, so that memrefCopy is called.
func.func @attributions(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %bytes = arith.constant 32 : i32
  %device = gpu.alloc (%c4) : memref<?xi64>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c4, %sy = %c1, %sz = %c1)
             dynamic_shared_memory_size %bytes
             workgroup(%own : memref<4xi64, #gpu.address_space<workgroup>>)
             private(%alone : memref<1xi64, #gpu.address_space<private>>) {
    %dynamic = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %more = memref.view %dynamic[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to memref<4xi64, #gpu.address_space<workgroup>>
    %ten = arith.constant 10 : i64
    %hundred = arith.constant 100 : i64
    %i = arith.index_cast %tx : index to i64
    %tens = arith.muli %i, %ten : i64
    %hundreds = arith.muli %i, %hundred : i64
    memref.store %i, %own[%tx] : memref<4xi64, #gpu.address_space<workgroup>>
    memref.store %hundreds, %more[%tx] : memref<4xi64, #gpu.address_space<workgroup>>
    memref.store %tens, %alone[%c0] : memref<1xi64, #gpu.address_space<private>>
    gpu.barrier
    %other = arith.subi %c3, %tx : index
    %a = memref.load %own[%other] : memref<4xi64, #gpu.address_space<workgroup>>
    %b = memref.load %more[%other] : memref<4xi64, #gpu.address_space<workgroup>>
    %c = memref.load %alone[%c0] : memref<1xi64, #gpu.address_space<private>>
    %ab = arith.addi %a, %b : i64
    %abc = arith.addi %ab, %c : i64
    memref.store %abc, %device[%tx] : memref<?xi64>
    gpu.terminator
  }
  %part = memref.subview %out[0] [%c4] [1] : memref<?xi64> to memref<?xi64, strided<[1]>>
  gpu.memcpy %part, %device : memref<?xi64, strided<[1]>>, memref<?xi64>
  gpu.dealloc %device : memref<?xi64>
  return
}

func.func @strided_copy(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c12 = arith.constant 12 : index
  %m = memref.alloc() : memref<3x4xi64>
  scf.for %i = %c0 to %c12 step %c1 {
    %flat = memref.collapse_shape %m [[0, 1]] : memref<3x4xi64> into memref<12xi64>
    %v = arith.index_cast %i : index to i64
    memref.store %v, %flat[%i] : memref<12xi64>
  }
  %from = memref.subview %m[0, 1] [3, 1] [1, 1] : memref<3x4xi64> to memref<3xi64, strided<[4], offset: 1>>
  %to = memref.subview %out[0] [3] [2] : memref<?xi64> to memref<3xi64, strided<[2]>>
  memref.copy %from, %to : memref<3xi64, strided<[4], offset: 1>> to memref<3xi64, strided<[2]>>
  memref.dealloc %m : memref<3x4xi64>
  return
}

// Elements of every width, and memory with gaps.
func.func @transfers(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c5 = arith.constant 5 : index
  %c6 = arith.constant 6 : index
  %c7 = arith.constant 7 : index
  %byte = arith.constant -3 : i8
  %bytes = gpu.alloc() : memref<5xi8>
  gpu.memset %bytes, %byte : memref<5xi8>, i8
  %host_bytes = memref.alloc() : memref<5xi8>
  gpu.memcpy %host_bytes, %bytes : memref<5xi8>, memref<5xi8>
  %r0 = memref.load %host_bytes[%c4] : memref<5xi8>
  %w0 = arith.extsi %r0 : i8 to i64
  memref.store %w0, %out[%c0] : memref<?xi64>
  %double = arith.constant 2.6 : f64
  %doubles = gpu.alloc(%c5) : memref<?xf64>
  gpu.memset %doubles, %double : memref<?xf64>, f64
  %host_doubles = memref.alloc(%c5) : memref<?xf64>
  gpu.memcpy %host_doubles, %doubles : memref<?xf64>, memref<?xf64>
  %r1 = memref.load %host_doubles[%c4] : memref<?xf64>
  %w1 = arith.bitcast %r1 : f64 to i64
  memref.store %w1, %out[%c1] : memref<?xi64>
  %index = arith.constant 7000000000 : index
  %indices = gpu.alloc() : memref<3x1xindex>
  gpu.memset %indices, %index : memref<3x1xindex>, index
  %host_indices = memref.alloc() : memref<3x1xindex>
  gpu.memcpy %host_indices, %indices : memref<3x1xindex>, memref<3x1xindex>
  %r2 = memref.load %host_indices[%c2, %c0] : memref<3x1xindex>
  %w2 = arith.index_cast %r2 : index to i64
  memref.store %w2, %out[%c2] : memref<?xi64>
  %true = arith.constant true
  %bits = gpu.alloc() : memref<7xi1>
  gpu.memset %bits, %true : memref<7xi1>, i1
  %host_bits = memref.alloc() : memref<7xi1>
  gpu.memcpy %host_bits, %bits : memref<7xi1>, memref<7xi1>
  %r3 = memref.load %host_bits[%c6] : memref<7xi1>
  %w3 = arith.extui %r3 : i1 to i64
  memref.store %w3, %out[%c3] : memref<?xi64>
  %number = complex.constant [1.5 : f32, -2.0 : f32] : complex<f32>
  %numbers = gpu.alloc() : memref<complex<f32>>
  gpu.memset %numbers, %number : memref<complex<f32>>, complex<f32>
  %host_numbers = memref.alloc() : memref<complex<f32>>
  gpu.memcpy %host_numbers, %numbers : memref<complex<f32>>, memref<complex<f32>>
  %r4 = memref.load %host_numbers[] : memref<complex<f32>>
  %real = complex.re %r4 : complex<f32>
  %imaginary = complex.im %r4 : complex<f32>
  %difference = arith.subf %real, %imaginary : f32
  %twice = arith.addf %difference, %difference : f32
  %w4 = arith.fptosi %twice : f32 to i64
  memref.store %w4, %out[%c4] : memref<?xi64>
  %small = arith.constant 1.5 : f8E5M2
  %smalls = gpu.alloc() : memref<2xf8E5M2>
  gpu.memset %smalls, %small : memref<2xf8E5M2>, f8E5M2
  %host_smalls = memref.alloc() : memref<2xf8E5M2>
  gpu.memcpy %host_smalls, %smalls : memref<2xf8E5M2>, memref<2xf8E5M2>
  %r5 = memref.load %host_smalls[%c1] : memref<2xf8E5M2>
  %i5 = arith.bitcast %r5 : f8E5M2 to i8
  %w5 = arith.extui %i5 : i8 to i64
  memref.store %w5, %out[%c5] : memref<?xi64>
  // Rows of a matrix: to the device and, of other columns, back.
  %zero = arith.constant 0 : i64
  %matrix = gpu.alloc(%c4) : memref<?x6xi64>
  gpu.memset %matrix, %zero : memref<?x6xi64>, i64
  %rows = memref.alloc() : memref<2x3xi64>
  scf.for %i = %c0 to %c2 step %c1 {
    scf.for %j = %c0 to %c3 step %c1 {
      %row = arith.muli %i, %c3 : index
      %at = arith.addi %row, %j : index
      %next = arith.addi %at, %c1 : index
      %value = arith.index_cast %next : index to i64
      memref.store %value, %rows[%i, %j] : memref<2x3xi64>
    }
  }
  %part = memref.subview %matrix[1, 2] [2, 3] [1, 1] : memref<?x6xi64> to memref<2x3xi64, strided<[6, 1], offset: 8>>
  %t0 = gpu.wait async
  %t1 = gpu.memcpy async [%t0] %part, %rows : memref<2x3xi64, strided<[6, 1], offset: 8>>, memref<2x3xi64>
  %back = memref.alloc() : memref<2x2xi64>
  %later = memref.subview %matrix[1, 2] [2, 2] [1, 2] : memref<?x6xi64> to memref<2x2xi64, strided<[6, 2], offset: 8>>
  %t2 = gpu.memcpy async [%t1] %back, %later : memref<2x2xi64>, memref<2x2xi64, strided<[6, 2], offset: 8>>
  gpu.wait [%t2]
  %ten = arith.constant 10 : i64
  %w6 = scf.for %i = %c0 to %c4 step %c1 iter_args(%sum = %zero) -> i64 {
    %row = arith.divui %i, %c2 : index
    %column = arith.remui %i, %c2 : index
    %digit = memref.load %back[%row, %column] : memref<2x2xi64>
    %shifted = arith.muli %sum, %ten : i64
    %more = arith.addi %shifted, %digit : i64
    scf.yield %more : i64
  }
  memref.store %w6, %out[%c6] : memref<?xi64>
  // One column in three.
  %one = arith.constant 1 : i32
  %none = arith.constant 0 : i32
  %grid = gpu.alloc() : memref<4x6xi32>
  gpu.memset %grid, %none : memref<4x6xi32>, i32
  %columns = memref.subview %grid[1, 1] [3, 2] [1, 3] : memref<4x6xi32> to memref<3x2xi32, strided<[6, 3], offset: 7>>
  gpu.memset %columns, %one : memref<3x2xi32, strided<[6, 3], offset: 7>>, i32
  %host_grid = memref.alloc() : memref<4x6xi32>
  gpu.memcpy %host_grid, %grid : memref<4x6xi32>, memref<4x6xi32>
  %flat = memref.collapse_shape %host_grid [[0, 1]] : memref<4x6xi32> into memref<24xi32>
  %c24 = arith.constant 24 : index
  %w7 = scf.for %i = %c0 to %c24 step %c1 iter_args(%sum = %zero) -> i64 {
    %element = memref.load %flat[%i] : memref<24xi32>
    %wide = arith.extui %element : i32 to i64
    %place = arith.index_cast %i : index to i64
    %bit = arith.shli %wide, %place : i64
    %more = arith.addi %sum, %bit : i64
    scf.yield %more : i64
  }
  memref.store %w7, %out[%c7] : memref<?xi64>
  return
}

// Rows that a symbol puts apart, behind an offset that is one too: no element more than they reach.
func.func @layouts(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c5 = arith.constant 5 : index
  %rows = gpu.alloc(%c3)[%c5, %c2] : memref<?x2xi64, affine_map<(d0, d1)[s0, s1] -> (d0 * s0 + d1 + s1)>>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c2, %sy = %c3, %sz = %c1) {
    %ten = arith.constant 10 : index
    %tens = arith.muli %ty, %ten : index
    %n = arith.addi %tens, %tx : index
    %i = arith.index_cast %n : index to i64
    memref.store %i, %rows[%ty, %tx] : memref<?x2xi64, affine_map<(d0, d1)[s0, s1] -> (d0 * s0 + d1 + s1)>>
    gpu.terminator
  }
  %back = memref.alloc(%c3) : memref<?x2xi64>
  gpu.memcpy %back, %rows : memref<?x2xi64>, memref<?x2xi64, affine_map<(d0, d1)[s0, s1] -> (d0 * s0 + d1 + s1)>>
  gpu.dealloc %rows : memref<?x2xi64, affine_map<(d0, d1)[s0, s1] -> (d0 * s0 + d1 + s1)>>
  %r0 = memref.load %back[%c2, %c1] : memref<?x2xi64>
  %r1 = memref.load %back[%c1, %c0] : memref<?x2xi64>
  memref.store %r0, %out[%c0] : memref<?xi64>
  memref.store %r1, %out[%c1] : memref<?xi64>
  // The first symbol of a strided layout is its offset.
  %t0 = gpu.wait async
  %line, %t1 = gpu.alloc async [%t0] (%c2)[%c1, %c3] : memref<?xi64, strided<[?], offset: ?>>
  %base, %offset, %size, %stride = memref.extract_strided_metadata %line : memref<?xi64, strided<[?], offset: ?>> -> memref<i64>, index, index, index
  %t2 = gpu.dealloc async [%t1] %line : memref<?xi64, strided<[?], offset: ?>>
  gpu.wait [%t2]
  %r2 = arith.index_cast %offset : index to i64
  %r3 = arith.index_cast %stride : index to i64
  memref.store %r2, %out[%c2] : memref<?xi64>
  memref.store %r3, %out[%c3] : memref<?xi64>
  return
}

func.func @print(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c1, %sy = %c1, %sz = %c1) {
    %true = arith.constant true
    %i8 = arith.constant -8 : i8
    %i16 = arith.constant -16 : i16
    %i32 = arith.constant -32 : i32
    %i64 = arith.constant -6400000000 : i64
    %letter = arith.constant 65 : i32
    %f16 = arith.constant 0.5 : f16
    %f32 = arith.constant 1.5 : f32
    %f64 = arith.constant -2.25 : f64
    "gpu.printf"() <{format = "100 %%\0A"}> : () -> ()
    "gpu.printf"(%true, %i8, %i16, %i32, %i64, %bx) <{format = "%d %d %d %d %lld %lld\0A"}> : (i1, i8, i16, i32, i64, index) -> ()
    "gpu.printf"(%i8, %i8, %i16, %i64) <{format = "%hhd %hhu %hx|%20lld\0A"}> : (i8, i8, i16, i64) -> ()
    "gpu.printf"(%f16, %i8, %f32, %f64) <{format = "%g %d %8.3f|%-9.2e|\0A"}> : (f16, i8, f32, f64) -> ()
    "gpu.printf"(%letter, %i32, %letter, %letter) <{format = "%c %u %#x %o\0A"}> : (i32, i32, i32, i32) -> ()
    gpu.terminator
  }
  return
}

func.func @asserted(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%sx = %c4, %sy = %c1, %sz = %c1) {
    %two = arith.constant 2 : index
    %small = arith.cmpi ult, %tx, %two : index
    cf.assert %small, "thread too large"
    gpu.terminator
  }
  return
}

func.func @absent_device(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %n = arith.constant 99 : i32
  gpu.set_default_device %n
  return
}

gpu.module @clustered {
  gpu.func @nothing() kernel {
    gpu.return
  }
}

func.func @clusters(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  gpu.launch_func @clustered::@nothing clusters in (%c2, %c1, %c1) blocks in (%c2, %c1, %c1) threads in (%c1, %c1, %c1)
  return
}

func.func @too_many(%out: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  // Not a constant, which the compiler would refuse.
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  %size = memref.dim %out, %c0 : memref<?xi64>
  %many = arith.addi %size, %c1024 : index
  gpu.launch_func @clustered::@nothing blocks in (%c1, %c1, %c1) threads in (%many, %c1, %c1)
  return
}
}
