// Kernels made of host code (--pipeline=linalg), on memory of the caller and on a constant.
memref.global "private" constant @two : memref<f32> = dense<2.0>

func.func @add(%a: memref<?xf32, strided<[?], offset: ?>>, %b: memref<?xf32, strided<[?], offset: ?>>) attributes {llvm.emit_c_interface} {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%a : memref<?xf32, strided<[?], offset: ?>>) outs(%b : memref<?xf32, strided<[?], offset: ?>>) {
  ^bb0(%x: f32, %y: f32):
    %s = arith.addf %x, %y : f32
    linalg.yield %s : f32
  }
  return
}

func.func @scale(%a: memref<?xf32>) attributes {llvm.emit_c_interface} {
  %two = memref.get_global @two : memref<f32>
  linalg.generic {indexing_maps = [affine_map<(i) -> ()>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%two : memref<f32>) outs(%a : memref<?xf32>) {
  ^bb0(%x: f32, %y: f32):
    %s = arith.mulf %x, %y : f32
    linalg.yield %s : f32
  }
  return
}
