// -3i was true on every device, and by numpy's part of the fuzzer: of a complex number the real part counts.
// XLA:CPU and StableHLO's interpreter agree.
// input tensor<4x4xcomplex<f32>> 00000000000040c000004040000080c0000080c0000040c00000004000000040000040c000000040000080c0000000c0000080400000000000004040000000c0000080c00000803f000040c0000000c00000004000000000000080bf000000000000000000000000000000c0000080c000004040000080400000804000000000
// result tensor<4x4xi1> 00010101010101010101010100010101
func.func @main(%v0: tensor<4x4xcomplex<f32>>) -> (tensor<4x4xi1>) {
  %v1 = "stablehlo.convert"(%v0) : (tensor<4x4xcomplex<f32>>) -> (tensor<4x4xi1>)
  func.return %v1 : tensor<4x4xi1>
}
