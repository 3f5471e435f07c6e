// A kernel with parameters of every kind, each of which it stores as a number.
module attributes {gpu.container_module} {
gpu.module @device {
  gpu.func @store(%flag: i1, %byte: i8, %short: i16, %half: f16, %odd: i24, %bhalf: bf16, %double: f64,
                  %four: vector<4xf32>, %three: vector<3xi16>, %pair: !llvm.struct<(i8, i64)>,
                  %strided: memref<2x3xi32, strided<[8, 2], offset: 1>>, %last: i8, %out: memref<?xi64>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %0 = arith.extui %flag : i1 to i64
    %1 = arith.extsi %byte : i8 to i64
    %2 = arith.extsi %short : i16 to i64
    %3 = arith.fptosi %half : f16 to i64
    %4 = arith.extsi %odd : i24 to i64
    %5 = arith.fptosi %bhalf : bf16 to i64
    %6 = arith.fptosi %double : f64 to i64
    %f = vector.extract %four[3] : f32 from vector<4xf32>
    %7 = arith.fptosi %f : f32 to i64
    %t = vector.extract %three[2] : i16 from vector<3xi16>
    %8 = arith.extsi %t : i16 to i64
    %a = llvm.extractvalue %pair[0] : !llvm.struct<(i8, i64)>
    %9 = arith.extsi %a : i8 to i64
    %10 = llvm.extractvalue %pair[1] : !llvm.struct<(i8, i64)>
    %s = memref.load %strided[%c1, %c2] : memref<2x3xi32, strided<[8, 2], offset: 1>>
    %11 = arith.extsi %s : i32 to i64
    %12 = arith.extsi %last : i8 to i64
    %all = vector.from_elements %0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12 : vector<13xi64>
    vector.store %all, %out[%c0] : memref<?xi64>, vector<13xi64>
    gpu.return
  }
}
func.func @parameters(%host: memref<?xi64>) attributes {llvm.emit_c_interface} {
  %c1 = arith.constant 1 : index
  %c13 = arith.constant 13 : index
  %c32 = arith.constant 32 : index
  %flag = arith.constant true
  %byte = arith.constant -5 : i8
  %short = arith.constant -300 : i16
  %half = arith.constant 2.0 : f16
  %odd = arith.constant -70000 : i24
  %bhalf = arith.constant -8.0 : bf16
  %double = arith.constant 1.0e12 : f64
  %four = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : vector<4xf32>
  %three = arith.constant dense<[1, 2, -3]> : vector<3xi16>
  %i8 = llvm.mlir.constant(-7 : i8) : i8
  %i64 = llvm.mlir.constant(-6000000000 : i64) : i64
  %u = llvm.mlir.undef : !llvm.struct<(i8, i64)>
  %p = llvm.insertvalue %i8, %u[0] : !llvm.struct<(i8, i64)>
  %pair = llvm.insertvalue %i64, %p[1] : !llvm.struct<(i8, i64)>
  %numbers = memref.alloc() : memref<32xi32>
  affine.for %i = 0 to 32 {
    %n = arith.index_cast %i : index to i32
    memref.store %n, %numbers[%i] : memref<32xi32>
  }
  %device = gpu.alloc () : memref<32xi32>
  gpu.memcpy %device, %numbers : memref<32xi32>, memref<32xi32>
  %strided = memref.reinterpret_cast %device to offset: [1], sizes: [2, 3], strides: [8, 2]
    : memref<32xi32> to memref<2x3xi32, strided<[8, 2], offset: 1>>
  %out = gpu.alloc (%c13) : memref<?xi64>
  gpu.launch_func @device::@store blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
    args(%flag : i1, %byte : i8, %short : i16, %half : f16, %odd : i24, %bhalf : bf16, %double : f64,
         %four : vector<4xf32>, %three : vector<3xi16>, %pair : !llvm.struct<(i8, i64)>,
         %strided : memref<2x3xi32, strided<[8, 2], offset: 1>>, %byte : i8, %out : memref<?xi64>)
  gpu.memcpy %host, %out : memref<?xi64>, memref<?xi64>
  gpu.dealloc %out : memref<?xi64>
  gpu.dealloc %device : memref<32xi32>
  return
}
}
