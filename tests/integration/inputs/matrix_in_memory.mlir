// Vectors of two dimensions, loaded from a strided part of a matrix and stored to the second of three.
module attributes {gpu.container_module} {
  memref.global "private" constant @given : memref<4x8xbf16> = dense<[
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0],
    [20.0, 21.0, 22.0, 23.0, 24.0, 25.0, 26.0, 27.0], [30.0, 31.0, 32.0, 33.0, 34.0, 35.0, 36.0, 37.0]]>
  gpu.module @kernels {
    gpu.func @widen(%from: memref<4x8xbf16>, %to: memref<3x2x4xf32>) kernel {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %part = memref.subview %from[1, 2][3, 6][1, 1] : memref<4x8xbf16> to memref<3x6xbf16, strided<[8, 1], offset: 10>>
      %narrow = vector.load %part[%c1, %c0] : memref<3x6xbf16, strided<[8, 1], offset: 10>>, vector<2x4xbf16>
      %wide = arith.extf %narrow : vector<2x4xbf16> to vector<2x4xf32>
      vector.store %wide, %to[%c1, %c0, %c0] : memref<3x2x4xf32>, vector<2x4xf32>
      gpu.return
    }
  }
  func.func private @printMemrefF32(memref<*xf32>)
  func.func @main() {
    %c1 = arith.constant 1 : index
    %zero = arith.constant 0.0 : f32
    %from = memref.get_global @given : memref<4x8xbf16>
    %to = memref.alloc() : memref<3x2x4xf32>
    linalg.fill ins(%zero : f32) outs(%to : memref<3x2x4xf32>)
    %all_from = memref.cast %from : memref<4x8xbf16> to memref<*xbf16>
    %all_to = memref.cast %to : memref<3x2x4xf32> to memref<*xf32>
    gpu.host_register %all_from : memref<*xbf16>
    gpu.host_register %all_to : memref<*xf32>
    gpu.launch_func @kernels::@widen blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1)
        args(%from : memref<4x8xbf16>, %to : memref<3x2x4xf32>)
    call @printMemrefF32(%all_to) : (memref<*xf32>) -> ()
    return
  }
}
