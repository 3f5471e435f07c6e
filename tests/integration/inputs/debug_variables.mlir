// Variables of a front end: the same for all threads, counting with them, and one in memory of its own.
#file = #llvm.di_file<"variables.f90" in ".">
#cu = #llvm.di_compile_unit<id = distinct[0]<>, sourceLanguage = DW_LANG_C, file = #file, producer = "test", isOptimized = true, emissionKind = Full>
#int = #llvm.di_basic_type<tag = DW_TAG_base_type, name = "int", sizeInBits = 32, encoding = DW_ATE_signed>
#void = #llvm.di_subroutine_type<>
#sp = #llvm.di_subprogram<id = distinct[1]<>, compileUnit = #cu, scope = #file, name = "k", linkageName = "k", file = #file, line = 3, scopeLine = 3, subprogramFlags = "Definition|Optimized", type = #void>
#lane = #llvm.di_local_variable<scope = #sp, name = "lane_value", file = #file, line = 5, type = #int>
#uni = #llvm.di_local_variable<scope = #sp, name = "uniform_value", file = #file, line = 5, type = #int>
#lin = #llvm.di_local_variable<scope = #sp, name = "linear_value", file = #file, line = 5, type = #int>
#loc5 = loc("variables.f90":5:1)
#loc6 = loc("variables.f90":6:1)
#loc7 = loc("variables.f90":7:1)
module attributes {gpu.container_module} {
  gpu.module @m {
    llvm.func @k(%p: !llvm.ptr, %n: i32) attributes {gpu.kernel, nvvm.kernel} {
      %t = nvvm.read.ptx.sreg.tid.x : i32 loc(#loc5)
      llvm.intr.dbg.value #lin = %t : i32 loc(fused<#sp>["variables.f90":5:1])
      %u = llvm.add %n, %n : i32 loc(fused<#sp>["variables.f90":5:1])
      llvm.intr.dbg.value #uni = %u : i32 loc(fused<#sp>["variables.f90":5:1])
      %a = llvm.getelementptr %p[%t] : (!llvm.ptr, i32) -> !llvm.ptr, i32 loc(fused<#sp>["variables.f90":5:1])
      %v = llvm.load %a : !llvm.ptr -> i32 loc(fused<#sp>["variables.f90":5:1])
      llvm.intr.dbg.value #lane = %v : i32 loc(fused<#sp>["variables.f90":6:1])
      %m1 = llvm.mlir.constant(-1 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %c31 = llvm.mlir.constant(31 : i32) : i32
      %s = nvvm.shfl.sync bfly %m1, %v, %c1, %c31 : i32 -> i32 loc(fused<#sp>["variables.f90":6:1])
      %x = llvm.add %s, %u : i32 loc(fused<#sp>["variables.f90":7:1])
      %y = llvm.add %x, %v : i32 loc(fused<#sp>["variables.f90":7:1])
      llvm.store %y, %a : i32, !llvm.ptr loc(fused<#sp>["variables.f90":7:1])
      llvm.return loc(fused<#sp>["variables.f90":8:1])
    } loc(fused<#sp>["variables.f90":3:1])
  }
  func.func @main() -> i32 {
    %c0 = arith.constant 0 : i32
    %n = arith.constant 21 : i32
    %c1 = arith.constant 1 : index
    %c64 = arith.constant 64 : index
    %c0i = arith.constant 0 : index
    %mem = memref.alloc() : memref<64xi32>
    scf.for %i = %c0i to %c64 step %c1 {
      %v = arith.index_cast %i : index to i32
      %c100 = arith.constant 100 : i32
      %w = arith.addi %v, %c100 : i32
      memref.store %w, %mem[%i] : memref<64xi32>
    }
    %pi = memref.extract_aligned_pointer_as_index %mem : memref<64xi32> -> index
    %pj = arith.index_cast %pi : index to i64
    %p = llvm.inttoptr %pj : i64 to !llvm.ptr
    gpu.launch_func @m::@k blocks in (%c1, %c1, %c1) threads in (%c64, %c1, %c1) args(%p : !llvm.ptr, %n : i32)
    return %c0 : i32
  }
}
