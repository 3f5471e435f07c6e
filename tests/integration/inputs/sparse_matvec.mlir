// A sparse matrix times a vector, for the pipeline of sparse GPU code generation: rows become threads.
#CSR = #sparse_tensor.encoding<{ map = (d0, d1) -> (d0 : dense, d1 : compressed), posWidth = 32, crdWidth = 32 }>
func.func @matvec(%a: tensor<?x?xf64, #CSR>, %x: tensor<?xf64>, %start: tensor<?xf64>) -> tensor<?xf64> {
  %y = linalg.matvec ins(%a, %x : tensor<?x?xf64, #CSR>, tensor<?xf64>) outs(%start : tensor<?xf64>) -> tensor<?xf64>
  return %y : tensor<?xf64>
}
func.func @main() -> i32 {
  %c2 = arith.constant 2 : index
  %values = arith.constant dense<[[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.0, 3.0, 4.0]]> : tensor<3x3xf64>
  %known = sparse_tensor.convert %values : tensor<3x3xf64> to tensor<3x3xf64, #CSR>
  %a = tensor.cast %known : tensor<3x3xf64, #CSR> to tensor<?x?xf64, #CSR>
  %ones = arith.constant dense<[5.0, 6.0, 7.0]> : tensor<3xf64>
  %x = tensor.cast %ones : tensor<3xf64> to tensor<?xf64>
  %zeros = arith.constant dense<1.0> : tensor<3xf64>
  %start = tensor.cast %zeros : tensor<3xf64> to tensor<?xf64>
  %y = call @matvec(%a, %x, %start) : (tensor<?x?xf64, #CSR>, tensor<?xf64>, tensor<?xf64>) -> tensor<?xf64>
  // 1 + 3 * 6 + 4 * 7
  %last = tensor.extract %y[%c2] : tensor<?xf64>
  %status = arith.fptosi %last : f64 to i32
  return %status : i32
}
