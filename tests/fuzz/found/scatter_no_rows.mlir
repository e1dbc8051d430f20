// seed 2998 small on fast: compile: JaxRuntimeError: INTERNAL: the compiler failed: ZeroDivisionError: integer division or modulo by zero
// of the whole program: XLA agrees with numpy
// input tensor<13xi32> afeeef81c8d101b1d763e3e0a46ca6f2c7a4d2e575dbde1f07714507ef9871b71df29e553ad74786ffc7a5f2282e9ab599d24494
// input tensor<1x1x0xi16> -
// input tensor<1x0xi32> -
// result tensor<13xi32> afeeef81c8d101b1d763e3e0a46ca6f2c7a4d2e575dbde1f07714507ef9871b71df29e553ad74786ffc7a5f2282e9ab599d24494
func.func @main(%v0: tensor<13xi32>, %v1: tensor<1x1x0xi16>, %v2: tensor<1x0xi32>) -> (tensor<13xi32>) {
  %v6 = "stablehlo.scatter"(%v0, %v1, %v2) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
    ^bb0(%v3: tensor<i32>, %v4: tensor<i32>):
      %v5 = "stablehlo.add"(%v3, %v4) : (tensor<i32>, tensor<i32>) -> (tensor<i32>)
      stablehlo.return %v5 : tensor<i32>
  }) : (tensor<13xi32>, tensor<1x1x0xi16>, tensor<1x0xi32>) -> (tensor<13xi32>)
  func.return %v6 : tensor<13xi32>
}
