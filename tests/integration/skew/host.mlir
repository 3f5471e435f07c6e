// Programs as MLIR lowers them for the host; each tells its result by its exit status.
//--- alloc
func.func @main() -> i32 {
  %zero = arith.constant 0 : index
  %n = arith.constant 100 : index
  %one = arith.constant 1 : i32
  %memory = memref.alloc() : memref<4xi32>
  %more = memref.alloc(%n) : memref<?xi32>
  memref.store %one, %memory[%zero] : memref<4xi32>
  memref.store %one, %more[%zero] : memref<?xi32>
  %a = memref.load %memory[%zero] : memref<4xi32>
  %b = memref.load %more[%zero] : memref<?xi32>
  %sum = arith.addi %a, %b : i32
  memref.dealloc %memory : memref<4xi32>
  memref.dealloc %more : memref<?xi32>
  return %sum : i32
}
//--- global
memref.global "private" constant @table : memref<4xi32> = dense<[3, 1, 4, 1]>
memref.global "private" @counter : memref<1xi32> = dense<5>
func.func @main() -> i32 {
  %two = arith.constant 2 : index
  %zero = arith.constant 0 : index
  %table = memref.get_global @table : memref<4xi32>
  %counter = memref.get_global @counter : memref<1xi32>
  %a = memref.load %table[%two] : memref<4xi32>
  %b = memref.load %counter[%zero] : memref<1xi32>
  %sum = arith.addi %a, %b : i32
  return %sum : i32
}
//--- loop
func.func @main() -> i32 {
  %zero = arith.constant 0 : index
  %n = arith.constant 10 : index
  %one = arith.constant 1 : index
  %begin = arith.constant 0 : i32
  %sum = scf.for %i = %zero to %n step %one iter_args(%sum = %begin) -> i32 {
    %j = arith.index_cast %i : index to i32
    %next = arith.addi %sum, %j : i32
    scf.yield %next : i32
  }
  return %sum : i32
}
//--- masked
func.func @main() -> i32 {
  %zero = arith.constant 0 : index
  %three = arith.constant 3 : index
  %pad = arith.constant dense<9> : vector<4xi32>
  %memory = memref.alloca() : memref<4xi32>
  %values = arith.constant dense<[1, 2, 3, 4]> : vector<4xi32>
  vector.store %values, %memory[%zero] : memref<4xi32>, vector<4xi32>
  %mask = vector.create_mask %three : vector<4xi1>
  %v = vector.maskedload %memory[%zero], %mask, %pad : memref<4xi32>, vector<4xi1>, vector<4xi32> into vector<4xi32>
  %sum = vector.reduction <add>, %v : vector<4xi32> into i32
  return %sum : i32
}
//--- effects until=19
// Effects on memory as MLIR spells them out: what writes memory must not count as pure.
module {
  llvm.mlir.global internal @cell(0 : i32) : i32
  llvm.func @set(%v: i32) attributes {noinline, passthrough = ["nounwind", "willreturn"], memory_effects = #llvm.memory_effects<other = write, argMem = none, inaccessibleMem = none>} {
    %p = llvm.mlir.addressof @cell : !llvm.ptr
    llvm.store %v, %p : i32, !llvm.ptr
    llvm.return
  }
  llvm.func @main() -> i32 {
    %c = llvm.mlir.constant(7 : i32) : i32
    llvm.call @set(%c) : (i32) -> ()
    %p = llvm.mlir.addressof @cell : !llvm.ptr
    %v = llvm.load %p : !llvm.ptr -> i32
    llvm.return %v : i32
  }
}
//--- effects_errno since=22
// Effects on memory as MLIR spells them out: what writes memory must not count as pure.
module {
  llvm.mlir.global internal @cell(0 : i32) : i32
  llvm.func @set(%v: i32) attributes {noinline, passthrough = ["nounwind", "willreturn"], memory_effects = #llvm.memory_effects<other = write, argMem = none, inaccessibleMem = none, errnoMem = none, targetMem0 = none, targetMem1 = none>} {
    %p = llvm.mlir.addressof @cell : !llvm.ptr
    llvm.store %v, %p : i32, !llvm.ptr
    llvm.return
  }
  llvm.func @main() -> i32 {
    %c = llvm.mlir.constant(7 : i32) : i32
    llvm.call @set(%c) : (i32) -> ()
    %p = llvm.mlir.addressof @cell : !llvm.ptr
    %v = llvm.load %p : !llvm.ptr -> i32
    llvm.return %v : i32
  }
}
//--- float
func.func @main() -> i32 {
  %x = arith.constant 2.25 : f32
  %r = math.sqrt %x : f32
  %m = arith.maximumf %r, %x : f32
  %f = math.floor %m : f32
  %i = arith.fptosi %f : f32 to i32
  return %i : i32
}
