module attributes {gpu.container_module} {
  func.func private @callback(i32) attributes {llvm.emit_c_interface}
  func.func @twice(%x: memref<?xi32>, %by: i32) attributes {llvm.emit_c_interface} {
    %c1 = arith.constant 1 : index
    %c0 = arith.constant 0 : index
    %n = memref.dim %x, %c0 : memref<?xi32>
    gpu.launch blocks(%bx, %by_, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%bsx = %n, %bsy = %c1, %bsz = %c1) {
      %v = memref.load %x[%tx] : memref<?xi32>
      %w = arith.addi %v, %by : i32
      memref.store %w, %x[%tx] : memref<?xi32>
      gpu.terminator
    }
    func.call @callback(%by) : (i32) -> ()
    gpu.launch blocks(%bx, %by_, %bz) in (%gx = %c1, %gy = %c1, %gz = %c1) threads(%tx, %ty, %tz) in (%bsx = %n, %bsy = %c1, %bsz = %c1) {
      %v = memref.load %x[%tx] : memref<?xi32>
      %w = arith.addi %v, %by : i32
      memref.store %w, %x[%tx] : memref<?xi32>
      gpu.terminator
    }
    return
  }
}
