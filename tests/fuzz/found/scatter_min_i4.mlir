// seed 2272 small on fast: result 0 (%v6: tensor<17xi4>): 5 of 17 wrong; at (3,): 1, not -1 (bound 0)
// of the whole program: XLA agrees with numpy
// input tensor<17xi4> 090f090f0e030d0f0e0a0001000d020500
// input tensor<i64> 0300000000000000
// input tensor<7xi4> 010f0e04000e0d
// result tensor<17xi4> 090f090f0e0e0d0f0e0a0001000d020500 unsigned-zeros
func.func @main(%v0: tensor<17xi4>, %v1: tensor<i64>, %v2: tensor<7xi4>) -> (tensor<17xi4>) {
  %v6 = "stablehlo.scatter"(%v0, %v1, %v2) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 0>}> ({
    ^bb0(%v3: tensor<i4>, %v4: tensor<i4>):
      %v5 = "stablehlo.minimum"(%v3, %v4) : (tensor<i4>, tensor<i4>) -> (tensor<i4>)
      stablehlo.return %v5 : tensor<i4>
  }) : (tensor<17xi4>, tensor<i64>, tensor<7xi4>) -> (tensor<17xi4>)
  func.return %v6 : tensor<17xi4>
}
