// A product of matrices in vectors, for --pipeline='gpu.module(gpu.func(convert-vector-to-gpu)),gpu': tensor cores carry
// the sum over a loop. a is (i + k) % 3 - 1, b is (k + 2 j) % 5 - 2; what the host computes another way has to be equal.
#transposed = affine_map<(d0, d1) -> (d1, d0)>
#left = affine_map<(d0, d1, d2) -> (d0, d2)>
#right = affine_map<(d0, d1, d2) -> (d1, d2)>
#sum = affine_map<(d0, d1, d2) -> (d0, d1)>
module attributes {gpu.container_module} {
  gpu.module @products {
    gpu.func @matmul(%a: memref<16x64xf16>, %b: memref<64x16xf16>, %c: memref<16x16xf16>) kernel {
      %c0 = arith.constant 0 : index
      %c16 = arith.constant 16 : index
      %c64 = arith.constant 64 : index
      %zero = arith.constant 0.0 : f16
      %start = vector.transfer_read %c[%c0, %c0], %zero {in_bounds = [true, true]} : memref<16x16xf16>, vector<16x16xf16>
      %end = scf.for %k = %c0 to %c64 step %c16 iter_args(%so_far = %start) -> vector<16x16xf16> {
        %x = vector.transfer_read %a[%c0, %k], %zero {in_bounds = [true, true]} : memref<16x64xf16>, vector<16x16xf16>
        %y = vector.transfer_read %b[%k, %c0], %zero {permutation_map = #transposed, in_bounds = [true, true]} : memref<64x16xf16>, vector<16x16xf16>
        %z = vector.contract {indexing_maps = [#left, #right, #sum], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %x, %y, %so_far : vector<16x16xf16>, vector<16x16xf16> into vector<16x16xf16>
        scf.yield %z : vector<16x16xf16>
      }
      vector.transfer_write %end, %c[%c0, %c0] {in_bounds = [true, true]} : vector<16x16xf16>, memref<16x16xf16>
      gpu.return
    }
  }
  func.func @number(%i: index, %j: index, %weight: index, %modulus: index, %middle: index) -> f16 {
    %weighted = arith.muli %j, %weight : index
    %sum = arith.addi %i, %weighted : index
    %rest = arith.remui %sum, %modulus : index
    %centered = arith.subi %rest, %middle : index
    %word = arith.index_cast %centered : index to i32
    %value = arith.sitofp %word : i32 to f16
    return %value : f16
  }
  func.func @main() -> i32 {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %c5 = arith.constant 5 : index
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %zero = arith.constant 0.0 : f16
    %a = gpu.alloc host_shared () : memref<16x64xf16>
    %b = gpu.alloc host_shared () : memref<64x16xf16>
    %c = gpu.alloc host_shared () : memref<16x16xf16>
    gpu.memset %c, %zero : memref<16x16xf16>, f16
    scf.for %i = %c0 to %c16 step %c1 {
      scf.for %k = %c0 to %c64 step %c1 {
        %x = func.call @number(%i, %k, %c1, %c3, %c1) : (index, index, index, index, index) -> f16
        memref.store %x, %a[%i, %k] : memref<16x64xf16>
        %y = func.call @number(%k, %i, %c2, %c5, %c2) : (index, index, index, index, index) -> f16
        memref.store %y, %b[%k, %i] : memref<64x16xf16>
      }
    }
    gpu.launch_func @products::@matmul blocks in (%c1, %c1, %c1) threads in (%c32, %c1, %c1)
        args(%a : memref<16x64xf16>, %b : memref<64x16xf16>, %c : memref<16x16xf16>)
    %none = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %wrong = scf.for %i = %c0 to %c16 step %c1 iter_args(%rows = %none) -> i32 {
      %inner = scf.for %j = %c0 to %c16 step %c1 iter_args(%count = %rows) -> i32 {
        %expected = scf.for %k = %c0 to %c64 step %c1 iter_args(%so_far = %zero) -> f16 {
          %x = memref.load %a[%i, %k] : memref<16x64xf16>
          %y = memref.load %b[%k, %j] : memref<64x16xf16>
          %product = arith.mulf %x, %y : f16
          %more = arith.addf %so_far, %product : f16
          scf.yield %more : f16
        }
        %given = memref.load %c[%i, %j] : memref<16x16xf16>
        %differs = arith.cmpf une, %expected, %given : f16
        %counted = arith.addi %count, %one : i32
        %next = arith.select %differs, %counted, %count : i32
        scf.yield %next : i32
      }
      scf.yield %inner : i32
    }
    %any = arith.cmpi ne, %wrong, %none : i32
    %status = arith.extui %any : i1 to i32
    return %status : i32
  }
}
