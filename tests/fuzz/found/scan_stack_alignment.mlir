// seed 3034 small on fast: crash: exit code -11
// of the whole program: XLA agrees with numpy
// input tensor<4x4x6xi16> 0300faff0800f9fffbff02000100fcff0000fefffeff0500fdff03000900fbff050002000200060009000200f9fff8ff02000300fbfffeff0500fdfffbff0500f8fffbff07000400fbff0100fbff010009000600fbfffbff03000700f9ff09000800060009000200f9fffbfffcfff9fffcff00000000f8fffcfffbff0300000001000000f8ff09000300fdfff9fffdff0900fafffbff0100fdff09000800faff0100fdfffefffdff06000300ffff090005000800fafff9fffbff050001000900
// result tensor<4xi16> 0000000000000084
func.func @main(%v0: tensor<4x4x6xi16>) -> (tensor<4xi16>) {
  %v1 = "stablehlo.constant"() <{value = dense<"0x0000"> : tensor<i16>}> : () -> (tensor<i16>)
  %v5 = "stablehlo.reduce_window"(%v0, %v1) <{window_dimensions = array<i64: 4, 1, 1>, window_strides = array<i64: 1, 1, 1>, base_dilations = array<i64: 1, 1, 1>, window_dilations = array<i64: 1, 1, 1>, padding = dense<"0x000000000000000003000000000000000000000000000000000000000000000000000000000000000000000000000000"> : tensor<3x2xi64>}> ({
    ^bb0(%v2: tensor<i16>, %v3: tensor<i16>):
      %v4 = "stablehlo.add"(%v2, %v3) : (tensor<i16>, tensor<i16>) -> (tensor<i16>)
      stablehlo.return %v4 : tensor<i16>
  }) : (tensor<4x4x6xi16>, tensor<i16>) -> (tensor<4x4x6xi16>)
  %v6 = "stablehlo.constant"() <{value = dense<"0x0100"> : tensor<i16>}> : () -> (tensor<i16>)
  %v10 = "stablehlo.reduce"(%v5, %v6) <{dimensions = array<i64: 0, 2>}> ({
    ^bb0(%v7: tensor<i16>, %v8: tensor<i16>):
      %v9 = "stablehlo.multiply"(%v7, %v8) : (tensor<i16>, tensor<i16>) -> (tensor<i16>)
      stablehlo.return %v9 : tensor<i16>
  }) : (tensor<4x4x6xi16>, tensor<i16>) -> (tensor<4xi16>)
  func.return %v10 : tensor<4xi16>
}
