// seed 3403 small on fast: compile: JaxRuntimeError: INTERNAL: compiling kernels for software Metal failed (exit status 1):
// unit0.cc: In function ‘void k_709224fac116411697c411dc(float*, uint3)’:
// unit0.cc:42:49: error: lvalue required as decrement operand
//    42 |   const float t1 = float(1) / (float(1) + exp(--0x1.8b9e540000000p-1f));
//       |                                                 ^~~~~~~~~~~~~~~~~~~~~
// At global scope:
// cc1plus: note: unrecognized command-line option ‘-Wno-reserved-user-defined-literal’ may have been intended to silence earlier diagnostics
// repeat wit
// of the whole program: XLA agrees with numpy
// result tensor<i32> 00000000
func.func @main() -> (tensor<i32>) {
  %v0 = "stablehlo.constant"() <{value = dense<"0x2ACF45BF"> : tensor<f32>}> : () -> (tensor<f32>)
  %v1 = "stablehlo.logistic"(%v0) : (tensor<f32>) -> (tensor<f32>)
  %v2 = "stablehlo.constant"() <{value = dense<"0x00000000"> : tensor<i32>}> : () -> (tensor<i32>)
  %v12, %v13, %v14, %v15 = "stablehlo.while"(%v2, %v2, %v1, %v2) ({
    ^bb0(%v3: tensor<i32>, %v4: tensor<i32>, %v5: tensor<f32>, %v6: tensor<i32>):
      %v7 = "stablehlo.compare"(%v3, %v6) <{comparison_direction = #stablehlo<comparison_direction LT>, compare_type = #stablehlo<comparison_type SIGNED>}> : (tensor<i32>, tensor<i32>) -> (tensor<i1>)
      stablehlo.return %v7 : tensor<i1>
  }, {
    ^bb0(%v8: tensor<i32>, %v9: tensor<i32>, %v10: tensor<f32>, %v11: tensor<i32>):
      stablehlo.return %v11, %v11, %v10, %v9 : tensor<i32>, tensor<i32>, tensor<f32>, tensor<i32>
  }) : (tensor<i32>, tensor<i32>, tensor<f32>, tensor<i32>) -> (tensor<i32>, tensor<i32>, tensor<f32>, tensor<i32>)
  func.return %v12 : tensor<i32>
}
