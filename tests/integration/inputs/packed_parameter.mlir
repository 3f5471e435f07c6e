// A vector of bits, of which the host packs eight into a byte.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @last(%bits: vector<8xi1>, %out: memref<1xi64>) kernel {
      %zero = arith.constant 0 : index
      %bit = vector.extract %bits[7] : i1 from vector<8xi1>
      %number = arith.extui %bit : i1 to i64
      memref.store %number, %out[%zero] : memref<1xi64>
      gpu.return
    }
  }
  func.func @main() -> i32 {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %bits = arith.constant dense<[false, false, false, false, false, false, false, true]> : vector<8xi1>
    %host = memref.alloc() : memref<1xi64>
    %device = gpu.alloc() : memref<1xi64>
    gpu.launch_func @kernels::@last blocks in (%one, %one, %one) threads in (%one, %one, %one)
                    args(%bits : vector<8xi1>, %device : memref<1xi64>)
    gpu.memcpy %host, %device : memref<1xi64>, memref<1xi64>
    %number = memref.load %host[%zero] : memref<1xi64>
    %one64 = arith.constant 1 : i64
    %wrong = arith.cmpi ne, %number, %one64 : i64
    %status = arith.extui %wrong : i1 to i32
    return %status : i32
  }
}
