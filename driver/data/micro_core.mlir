// What every program needs of a recipe, computed on integers and on floats that are exact.
// prints: 127 102 93 90 126 116 108 104 157 109 101 111 125 111 34 30 60 51 50 44 73 49 44 11 28 27 18 5 9 6 5 1
module attributes {gpu.container_module} {

llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.mlir.global internal constant @number(" %d\00")

gpu.module @micro {
  gpu.func @kernel(%x: memref<?xi32>) workgroup(%shared: memref<32xi32, #gpu.address_space<workgroup>>) kernel {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c31 = arith.constant 31 : index
    %two = arith.constant 2 : i32
    %three = arith.constant 3 : i32
    %seven = arith.constant 7 : i32
    %thirteen = arith.constant 13 : i32
    %sixteen = arith.constant 16 : i32
    %half = arith.constant 5.0e-01 : f32
    %offset = arith.constant 1.5 : f32
    %i = gpu.thread_id x
    %v = memref.load %x[%i] : memref<?xi32>
    %product = arith.muli %v, %seven : i32
    %sum = arith.addi %product, %three : i32
    %shifted = arith.shli %v, %two : i32
    %mixed = arith.xori %sum, %shifted : i32
    %rest = arith.remsi %mixed, %thirteen : i32
    %less = arith.cmpi slt, %v, %sixteen : i32
    %minus = arith.subi %mixed, %rest : i32
    %plus = arith.addi %mixed, %rest : i32
    %chosen = arith.select %less, %minus, %plus : i32
    %count = index.remu %i, %c4
    %looped = scf.for %k = %c0 to %count step %c1 iter_args(%total = %chosen) -> i32 {
      %number = arith.index_cast %k : index to i32
      %weighted = arith.muli %number, %v : i32
      %next = arith.addi %total, %weighted : i32
      scf.yield %next : i32
    }
    %mirrored = affine.apply affine_map<(d0) -> (31 - d0)>(%i)
    memref.store %looped, %shared[%mirrored] : memref<32xi32, #gpu.address_space<workgroup>>
    gpu.barrier
    %other = memref.load %shared[%i] : memref<32xi32, #gpu.address_space<workgroup>>
    %float = arith.sitofp %other : i32 to f32
    %scaled = arith.mulf %float, %half : f32
    %moved = arith.subf %offset, %scaled : f32
    %distance = math.absf %moved : f32
    %result = arith.fptosi %distance : f32 to i32
    memref.store %result, %x[%i] : memref<?xi32>
    gpu.return
  }
}

func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 32 : index
  %two = arith.constant 2 : i32
  %x = memref.alloc(%n) : memref<?xi32>
  %quarter = arith.constant 2.5e-01 : f32
  scf.for %i = %c0 to %n step %c1 {
    %number = arith.index_cast %i : index to i32
    %fourfold = arith.shli %number, %two : i32
    %float = arith.sitofp %fourfold : i32 to f32
    %scaled = arith.mulf %float, %quarter : f32
    %v = arith.fptosi %scaled : f32 to i32
    memref.store %v, %x[%i] : memref<?xi32>
  }
  %device = gpu.alloc(%n) : memref<?xi32>
  gpu.memcpy %device, %x : memref<?xi32>, memref<?xi32>
  gpu.launch_func @micro::@kernel blocks in (%c1, %c1, %c1) threads in (%n, %c1, %c1)
      args(%device : memref<?xi32>)
  gpu.memcpy %x, %device : memref<?xi32>, memref<?xi32>
  gpu.dealloc %device : memref<?xi32>
  %text = llvm.mlir.addressof @number : !llvm.ptr
  scf.for %i = %c0 to %n step %c1 {
    %v = memref.load %x[%i] : memref<?xi32>
    %printed = llvm.call @printf(%text, %v) vararg(!llvm.func<i32 (ptr, ...)>) : (!llvm.ptr, i32) -> i32
  }
  memref.dealloc %x : memref<?xi32>
  %success = arith.constant 0 : i32
  return %success : i32
}

}
