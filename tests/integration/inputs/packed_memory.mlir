// Vectors of bits and of odd integers in memory of the host, which a kernel changes.
module attributes {gpu.container_module} {
  gpu.module @kernels {
    gpu.func @change(%bits: memref<2xvector<9xi1>>, %numbers: memref<2xvector<3xi12>>) kernel {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %a = memref.load %bits[%one] : memref<2xvector<9xi1>>
      %last = vector.extract %a[8] : i1 from vector<9xi1>
      %b = vector.insert %last, %a[3] : i1 into vector<9xi1>
      memref.store %b, %bits[%zero] : memref<2xvector<9xi1>>
      %c = memref.load %numbers[%one] : memref<2xvector<3xi12>>
      %d = vector.shuffle %c, %c [2, 0, 1] : vector<3xi12>, vector<3xi12>
      memref.store %d, %numbers[%zero] : memref<2xvector<3xi12>>
      gpu.return
    }
  }
  func.func @main() -> i32 {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %bits = arith.constant dense<[true, false, false, false, true, false, false, false, true]> : vector<9xi1>
    %numbers = arith.constant dense<[100, 200, 2000]> : vector<3xi12>
    %host_bits = memref.alloc() : memref<2xvector<9xi1>>
    %host_numbers = memref.alloc() : memref<2xvector<3xi12>>
    memref.store %bits, %host_bits[%one] : memref<2xvector<9xi1>>
    memref.store %numbers, %host_numbers[%one] : memref<2xvector<3xi12>>
    %device_bits = gpu.alloc() : memref<2xvector<9xi1>>
    %device_numbers = gpu.alloc() : memref<2xvector<3xi12>>
    gpu.memcpy %device_bits, %host_bits : memref<2xvector<9xi1>>, memref<2xvector<9xi1>>
    gpu.memcpy %device_numbers, %host_numbers : memref<2xvector<3xi12>>, memref<2xvector<3xi12>>
    gpu.launch_func @kernels::@change blocks in (%one, %one, %one) threads in (%one, %one, %one)
                    args(%device_bits : memref<2xvector<9xi1>>, %device_numbers : memref<2xvector<3xi12>>)
    gpu.memcpy %host_bits, %device_bits : memref<2xvector<9xi1>>, memref<2xvector<9xi1>>
    gpu.memcpy %host_numbers, %device_numbers : memref<2xvector<3xi12>>, memref<2xvector<3xi12>>
    %changed_bits = memref.load %host_bits[%zero] : memref<2xvector<9xi1>>
    %changed_numbers = memref.load %host_numbers[%zero] : memref<2xvector<3xi12>>
    %right_bits = arith.constant dense<[true, false, false, true, true, false, false, false, true]> : vector<9xi1>
    %right_numbers = arith.constant dense<[2000, 100, 200]> : vector<3xi12>
    %wrong_bits = arith.cmpi ne, %changed_bits, %right_bits : vector<9xi1>
    %wrong_numbers = arith.cmpi ne, %changed_numbers, %right_numbers : vector<3xi12>
    %some_bits = vector.reduction <or>, %wrong_bits : vector<9xi1> into i1
    %some_numbers = vector.reduction <or>, %wrong_numbers : vector<3xi1> into i1
    %wrong = arith.ori %some_bits, %some_numbers : i1
    %status = arith.extui %wrong : i1 to i32
    return %status : i32
  }
}
