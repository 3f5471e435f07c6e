// What by_hand.c does with cuSPARSE, and with cuSPARSELt behind it.
module attributes {gpu.container_module} {
  func.func private @of_cusparse() {
    %c3 = arith.constant 3 : index
    %c4 = arith.constant 4 : index
    %c5 = arith.constant 5 : index
    %t0 = gpu.wait async
    %positions, %t1 = gpu.alloc async [%t0] () : memref<4xindex>
    %indices, %t2 = gpu.alloc async [%t1] () : memref<5xindex>
    %values, %t3 = gpu.alloc async [%t2] () : memref<5xf64>
    %x, %t4 = gpu.alloc async [%t3] () : memref<4xf64>
    %y, %t5 = gpu.alloc async [%t4] () : memref<3xf64>
    %a, %t6 = gpu.create_csr async [%t5] %c3, %c4, %c5, %positions, %indices, %values
        : memref<4xindex>, memref<5xindex>, memref<5xf64>
    %dx, %t7 = gpu.create_dn_tensor async [%t6] %x, %c4 : index into memref<4xf64>
    %dy, %t8 = gpu.create_dn_tensor async [%t7] %y, %c3 : index into memref<3xf64>
    %size, %t9 = gpu.spmv_buffer_size async [%t8] %a, %dx, %dy into f64
    %w, %t10 = gpu.alloc async [%t9] (%size) : memref<?xi8>
    %t11 = gpu.spmv async [%t10] %a, %dx, %dy, %w : memref<?xi8> into f64
    // A product with a dense matrix, the sparse one transposed: (4 x 3) * (3 x 5)
    %b, %t12 = gpu.alloc async [%t11] () : memref<3x5xf64>
    %c, %t13 = gpu.alloc async [%t12] () : memref<4x5xf64>
    %db, %t14 = gpu.create_dn_tensor async [%t13] %b, %c3, %c5 : index, index into memref<3x5xf64>
    %dc, %t15 = gpu.create_dn_tensor async [%t14] %c, %c4, %c5 : index, index into memref<4x5xf64>
    %size2, %t16 = gpu.spmm_buffer_size async [%t15] %a{TRANSPOSE}, %db, %dc : index into f64
    %w2, %t17 = gpu.alloc async [%t16] (%size2) : memref<?xi8>
    %t18 = gpu.spmm async [%t17] %a{TRANSPOSE}, %db, %dc, %w2 : memref<?xi8> into f64
    %t19 = gpu.destroy_sp_mat async [%t18] %a
    %t20 = gpu.destroy_dn_tensor async [%t19] %dx
    %t21 = gpu.destroy_dn_tensor async [%t20] %dy
    %t22 = gpu.destroy_dn_tensor async [%t21] %db
    %t23 = gpu.destroy_dn_tensor async [%t22] %dc
    gpu.wait [%t23]
    return
  }
  func.func private @of_cusparselt() {
    %c16 = arith.constant 16 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %t0 = gpu.wait async
    %a, %t1 = gpu.alloc async [%t0] () : memref<16x32xf16>
    %b, %t2 = gpu.alloc async [%t1] () : memref<32x64xf16>
    %c, %t3 = gpu.alloc async [%t2] () : memref<16x64xf16>
    %sa, %t4 = gpu.create_2to4_spmat async [%t3] {PRUNE_AND_CHECK} %c16, %c32, %a : memref<16x32xf16>
    %db, %t5 = gpu.create_dn_tensor async [%t4] %b, %c32, %c64 : index, index into memref<32x64xf16>
    %dc, %t6 = gpu.create_dn_tensor async [%t5] %c, %c16, %c64 : index, index into memref<16x64xf16>
    %sizes:3, %t7 = gpu.spmm_buffer_size async [%t6] %sa, %db, %dc : index, index, index into f16
    %w0, %t8 = gpu.alloc async [%t7] (%sizes#0) : memref<?xi8>
    %w1, %t9 = gpu.alloc async [%t8] (%sizes#1) : memref<?xi8>
    %w2, %t10 = gpu.alloc async [%t9] (%sizes#2) : memref<?xi8>
    %t11 = gpu.spmm async [%t10] %sa, %db, %dc, %w0, %w1, %w2
        : memref<?xi8>, memref<?xi8>, memref<?xi8> into f16
    %t12 = gpu.destroy_sp_mat async [%t11] %sa
    %t13 = gpu.destroy_dn_tensor async [%t12] %db
    %t14 = gpu.destroy_dn_tensor async [%t13] %dc
    gpu.wait [%t14]
    return
  }
  func.func @main() -> i32 {
    call @of_cusparse() : () -> ()
    call @of_cusparselt() : () -> ()
    %status = arith.constant 0 : i32
    return %status : i32
  }
}
