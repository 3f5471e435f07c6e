; Modules that are compiled and not run: what they hold is compared in the assembly.
;--- ptrauth since=19 triple=arm64e-apple-darwin
declare void @function()
@signed = global ptr ptrauth (ptr @function, i32 0, i64 1234)
;--- ptrauth_plain triple=arm64e-apple-darwin
declare void @function()
@plain = global ptr @function
;--- launch_host
; What the host side of a launch looks like: strings, tables, constructors.
@name = private constant [7 x i8] c"kernel\00"
@names = global [1 x ptr] [ptr @name]
@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 123, ptr @load, ptr null }]
declare void @outside(ptr)
define internal void @load() {
  call void @outside(ptr @name)
  ret void
}
