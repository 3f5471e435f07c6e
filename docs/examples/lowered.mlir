// A program that another pipeline has lowered: nothing but the LLVM and NVVM dialects is left.
//
// Shows: such input is taken as it is. Kernels are llvm.func with gpu.kernel and nvvm.kernel, the
// host calls the mgpu* functions that gpu-to-llvm emits, and launches are still gpu.launch_func.
//
//   mlir-offload run lowered.mlir

module attributes {gpu.container_module} {

gpu.module @kernels {
  // data[i] = 3 * data[i] + 1 for i < n
  llvm.func @step(%data: !llvm.ptr, %n: i64) attributes {gpu.kernel, nvvm.kernel} {
    %tid = nvvm.read.ptx.sreg.tid.x : i32
    %ctaid = nvvm.read.ptx.sreg.ctaid.x : i32
    %ntid = nvvm.read.ptx.sreg.ntid.x : i32
    %start = llvm.mul %ctaid, %ntid : i32
    %i32 = llvm.add %start, %tid : i32
    %i = llvm.sext %i32 : i32 to i64
    %inside = llvm.icmp "slt" %i, %n : i64
    llvm.cond_br %inside, ^body, ^end
  ^body:
    %three = llvm.mlir.constant(3 : i32) : i32
    %one = llvm.mlir.constant(1 : i32) : i32
    %at = llvm.getelementptr %data[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32
    %value = llvm.load %at : !llvm.ptr -> i32
    %product = llvm.mul %value, %three : i32
    %sum = llvm.add %product, %one : i32
    llvm.store %sum, %at : i32, !llvm.ptr
    llvm.br ^end
  ^end:
    llvm.return
  }
}

llvm.func @malloc(i64) -> !llvm.ptr
llvm.func @free(!llvm.ptr)
llvm.func @printf(!llvm.ptr, ...) -> i32
llvm.func @mgpuStreamCreate() -> !llvm.ptr
llvm.func @mgpuStreamSynchronize(!llvm.ptr)
llvm.func @mgpuStreamDestroy(!llvm.ptr)
llvm.func @mgpuMemAlloc(i64, !llvm.ptr, i8) -> !llvm.ptr
llvm.func @mgpuMemFree(!llvm.ptr, !llvm.ptr)
llvm.func @mgpuMemcpy(!llvm.ptr, !llvm.ptr, i64, !llvm.ptr)
llvm.mlir.global internal constant @ok("lowered: ok, %lld of %lld elements right\0A\00")
llvm.mlir.global internal constant @bad("lowered: WRONG, %lld of %lld elements right\0A\00")

llvm.func @main() -> i32 {
  %zero = llvm.mlir.constant(0 : i64) : i64
  %one = llvm.mlir.constant(1 : i64) : i64
  %n = llvm.mlir.constant(1000 : i64) : i64
  %bytes = llvm.mlir.constant(4000 : i64) : i64
  %blocks = llvm.mlir.constant(8 : i64) : i64
  %threads = llvm.mlir.constant(128 : i64) : i64
  %not_shared = llvm.mlir.constant(0 : i8) : i8
  %data = llvm.call @malloc(%bytes) : (i64) -> !llvm.ptr
  llvm.br ^fill(%zero : i64)

^fill(%i: i64):
  %fill_more = llvm.icmp "slt" %i, %n : i64
  llvm.cond_br %fill_more, ^fill_body, ^run
^fill_body:
  %fill_at = llvm.getelementptr %data[%i] : (!llvm.ptr, i64) -> !llvm.ptr, i32
  %fill_value = llvm.trunc %i : i64 to i32
  llvm.store %fill_value, %fill_at : i32, !llvm.ptr
  %fill_next = llvm.add %i, %one : i64
  llvm.br ^fill(%fill_next : i64)

^run:
  %stream = llvm.call @mgpuStreamCreate() : () -> !llvm.ptr
  %device = llvm.call @mgpuMemAlloc(%bytes, %stream, %not_shared) : (i64, !llvm.ptr, i8) -> !llvm.ptr
  llvm.call @mgpuMemcpy(%device, %data, %bytes, %stream) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr) -> ()
  gpu.launch_func <%stream : !llvm.ptr> @kernels::@step
      blocks in (%blocks, %one, %one) threads in (%threads, %one, %one) : i64
      args(%device : !llvm.ptr, %n : i64)
  llvm.call @mgpuMemcpy(%data, %device, %bytes, %stream) : (!llvm.ptr, !llvm.ptr, i64, !llvm.ptr) -> ()
  llvm.call @mgpuStreamSynchronize(%stream) : (!llvm.ptr) -> ()
  llvm.call @mgpuMemFree(%device, %stream) : (!llvm.ptr, !llvm.ptr) -> ()
  llvm.call @mgpuStreamDestroy(%stream) : (!llvm.ptr) -> ()
  llvm.br ^check(%zero, %zero : i64, i64)

^check(%j: i64, %right: i64):
  %check_more = llvm.icmp "slt" %j, %n : i64
  llvm.cond_br %check_more, ^check_body, ^report
^check_body:
  %three32 = llvm.mlir.constant(3 : i32) : i32
  %one32 = llvm.mlir.constant(1 : i32) : i32
  %check_at = llvm.getelementptr %data[%j] : (!llvm.ptr, i64) -> !llvm.ptr, i32
  %got = llvm.load %check_at : !llvm.ptr -> i32
  %j32 = llvm.trunc %j : i64 to i32
  %product = llvm.mul %j32, %three32 : i32
  %expected = llvm.add %product, %one32 : i32
  %same = llvm.icmp "eq" %got, %expected : i32
  %step = llvm.zext %same : i1 to i64
  %right_next = llvm.add %right, %step : i64
  %check_next = llvm.add %j, %one : i64
  llvm.br ^check(%check_next, %right_next : i64, i64)

^report:
  llvm.call @free(%data) : (!llvm.ptr) -> ()
  %all = llvm.icmp "eq" %right, %n : i64
  %text_ok = llvm.mlir.addressof @ok : !llvm.ptr
  %text_bad = llvm.mlir.addressof @bad : !llvm.ptr
  %text = llvm.select %all, %text_ok, %text_bad : i1, !llvm.ptr
  %printed = llvm.call @printf(%text, %right, %n) vararg(!llvm.func<i32 (ptr, ...)>)
      : (!llvm.ptr, i64, i64) -> i32
  %success = llvm.mlir.constant(0 : i32) : i32
  %failure = llvm.mlir.constant(1 : i32) : i32
  %status = llvm.select %all, %success, %failure : i1, i32
  llvm.return %status : i32
}

}
