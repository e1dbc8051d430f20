// seed 9101200 small on checked: execute: JaxRuntimeError: INTERNAL: kernel k_5d05022bedb22076e7edfd8b: thread (0, 0, 0) of threadgroup (0, 0, 0) reads 4 bytes at byte 0 of buffer in1 (4 bytes), which nobody has written [strict software Metal, threads run forward]; launched for stablehlo.reduce_window at -:5, schedule reduce_window: Pointwise over n elements; thread t computes elements 16384*t up to 16384*(t+1).
// input tensor<4xf32> c99437c005a59cbe3bd32740cd8307bf
// result tensor<i32> 00000000
// result tensor<i32> 00000000
// result tensor<f32> 000080bf unsigned-zeros
func.func @main(%v0: tensor<4xf32>) -> (tensor<i32>, tensor<i32>, tensor<f32>) {
  %v1 = "stablehlo.constant"() <{value = dense<"0x00000000"> : tensor<i32>}> : () -> (tensor<i32>)
  %v2 = "stablehlo.constant"() <{value = dense<"0x000080BF00000040"> : tensor<2xf32>}> : () -> (tensor<2xf32>)
  %v3 = "stablehlo.constant"() <{value = dense<"0x00000000"> : tensor<f32>}> : () -> (tensor<f32>)
  %v10 = "stablehlo.select_and_scatter"(%v0, %v2, %v3) <{window_dimensions = array<i64: 2>, window_strides = array<i64: 3>, padding = dense<"0x00000000000000000100000000000000"> : tensor<1x2xi64>}> ({
    ^bb0(%v4: tensor<f32>, %v5: tensor<f32>):
      %v6 = "stablehlo.compare"(%v4, %v5) <{comparison_direction = #stablehlo<comparison_direction LE>, compare_type = #stablehlo<comparison_type FLOAT>}> : (tensor<f32>, tensor<f32>) -> (tensor<i1>)
      stablehlo.return %v6 : tensor<i1>
  }, {
    ^bb0(%v7: tensor<f32>, %v8: tensor<f32>):
      %v9 = "stablehlo.add"(%v7, %v8) : (tensor<f32>, tensor<f32>) -> (tensor<f32>)
      stablehlo.return %v9 : tensor<f32>
  }) : (tensor<4xf32>, tensor<2xf32>, tensor<f32>) -> (tensor<4xf32>)
  %v11 = "stablehlo.constant"() <{value = dense<"0x00000000"> : tensor<i32>}> : () -> (tensor<i32>)
  %v12 = "stablehlo.constant"() <{value = dense<"0x03000000"> : tensor<i32>}> : () -> (tensor<i32>)
  %v13 = "stablehlo.clamp"(%v11, %v1, %v12) : (tensor<i32>, tensor<i32>, tensor<i32>) -> (tensor<i32>)
  %v14 = "stablehlo.constant"() <{value = dense<"0x0000807F"> : tensor<f32>}> : () -> (tensor<f32>)
  %v18 = "stablehlo.reduce"(%v10, %v14) <{dimensions = array<i64: 0>}> ({
    ^bb0(%v15: tensor<f32>, %v16: tensor<f32>):
      %v17 = "stablehlo.minimum"(%v15, %v16) : (tensor<f32>, tensor<f32>) -> (tensor<f32>)
      stablehlo.return %v17 : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> (tensor<f32>)
  func.return %v1, %v13, %v18 : tensor<i32>, tensor<i32>, tensor<f32>
}
