// seed 3160 small on fast: compile: JaxRuntimeError: INTERNAL: the compiler failed: ZeroDivisionError: integer division or modulo by zero
// of the whole program: XLA agrees with numpy
// input tensor<1x33xf32> 000080bf000000c000008040000080c00000803f0000803f000080c00000803f00000040000080bf000080bf000000c00000000000004040000080bf000040c000000000000080bf00004040000080c00000803f00000040000000000000803f0000803f000080bf000000000000000000004040000040400000803f0000404000000040
// result tensor<1x33xf32> 000080bf000000c000008040000080c00000803f0000803f000080c00000803f00000040000080bf000080bf000000c00000000000004040000080bf000040c000000000000080bf00004040000080c00000803f00000040000000000000803f0000803f000080bf000000000000000000004040000040400000803f0000404000000040
func.func @main(%v0: tensor<1x33xf32>) -> (tensor<1x33xf32>) {
  %v1 = "stablehlo.constant"() <{value = dense<"0x00000000"> : tensor<i32>}> : () -> (tensor<i32>)
  %v13, %v14 = "stablehlo.while"(%v1, %v0) ({
    ^bb0(%v2: tensor<i32>, %v3: tensor<1x33xf32>):
      %v4 = "stablehlo.compare"(%v2, %v2) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>}> : (tensor<i32>, tensor<i32>) -> (tensor<i1>)
      stablehlo.return %v4 : tensor<i1>
  }, {
    ^bb0(%v5: tensor<i32>, %v6: tensor<1x33xf32>):
      %v7 = "stablehlo.constant"() <{value = dense<> : tensor<2x13x0xi16>}> : () -> (tensor<2x13x0xi16>)
      %v8 = "stablehlo.constant"() <{value = dense<> : tensor<13x0x1xf32>}> : () -> (tensor<13x0x1xf32>)
      %v12 = "stablehlo.scatter"(%v6, %v7, %v8) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 0>}> ({
        ^bb0(%v9: tensor<f32>, %v10: tensor<f32>):
          %v11 = "stablehlo.multiply"(%v9, %v10) : (tensor<f32>, tensor<f32>) -> (tensor<f32>)
          stablehlo.return %v11 : tensor<f32>
      }) : (tensor<1x33xf32>, tensor<2x13x0xi16>, tensor<13x0x1xf32>) -> (tensor<1x33xf32>)
      stablehlo.return %v5, %v12 : tensor<i32>, tensor<1x33xf32>
  }) : (tensor<i32>, tensor<1x33xf32>) -> (tensor<i32>, tensor<1x33xf32>)
  func.return %v14 : tensor<1x33xf32>
}
