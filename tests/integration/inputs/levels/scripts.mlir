// What no stock pass lowers by itself: softmax, a reduction of a parallel loop, a contraction of two types.
// Returns 0 if all results are right.
#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>
func.func @main() -> i32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %x = arith.constant dense<[[1.0, 2.0, 3.0, 4.0], [0.5, 0.5, 0.5, 0.5]]> : tensor<2x4xf32>
  %o = tensor.empty() : tensor<2x4xf32>
  %s = linalg.softmax dimension(1) ins(%x : tensor<2x4xf32>) outs(%o : tensor<2x4xf32>) -> tensor<2x4xf32>
  %quarter = tensor.extract %s[%c1, %c0] : tensor<2x4xf32>
  %largest = tensor.extract %s[%c0, %c3] : tensor<2x4xf32>
  %sum = scf.parallel (%i) = (%c0) to (%c8) step (%c1) init (%zero) -> f32 {
    %n = arith.index_cast %i : index to i32
    %f = arith.sitofp %n : i32 to f32
    scf.reduce(%f : f32) {
    ^bb0(%p: f32, %q: f32):
      %t = arith.addf %p, %q : f32
      scf.reduce.return %t : f32
    }
  }
  %v = arith.constant dense<1.5> : vector<4x4xf16>
  %z = arith.constant dense<0.5> : vector<4x4xf32>
  %r = vector.contract {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"], kind = #vector.kind<add>} %v, %v, %z : vector<4x4xf16>, vector<4x4xf16> into vector<4x4xf32>
  %e = vector.extract %r[3, 2] : f32 from vector<4x4xf32>
  %want_quarter = arith.constant 0.25 : f32
  %want_sum = arith.constant 28.0 : f32
  %want_e = arith.constant 9.5 : f32
  %low = arith.constant 0.6439 : f32
  %high = arith.constant 0.644 : f32
  %ok0 = arith.cmpf oeq, %quarter, %want_quarter : f32
  %ok1 = arith.cmpf oeq, %sum, %want_sum : f32
  %ok2 = arith.cmpf oeq, %e, %want_e : f32
  %ok3 = arith.cmpf ogt, %largest, %low : f32
  %ok4 = arith.cmpf olt, %largest, %high : f32
  %a0 = arith.andi %ok0, %ok1 : i1
  %a1 = arith.andi %ok2, %ok3 : i1
  %a2 = arith.andi %a0, %a1 : i1
  %ok = arith.andi %a2, %ok4 : i1
  %true = arith.constant true
  %bad = arith.xori %ok, %true : i1
  %status = arith.extui %bad : i1 to i32
  return %status : i32
}
