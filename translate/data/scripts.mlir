// Transform scripts for operations that no pass lowers; input_pipelines.yaml has the conditions of each script.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__mo_decompose_softmax(%root: !transform.any_op {transform.readonly}) {
    %softmax = transform.structured.match ops{["linalg.softmax"]} in %root : (!transform.any_op) -> !transform.any_op
    %parts = transform.structured.decompose_interface %softmax : (!transform.any_op) -> !transform.any_op
    transform.yield
  }

  // Only the lowering to outer products extends operands to the type of the result.
  transform.named_sequence @__mo_lower_mixed_contract(%root: !transform.any_op {transform.readonly}) {
    %functions = transform.structured.match ops{["func.func", "gpu.func"]} in %root : (!transform.any_op) -> !transform.any_op
    transform.apply_patterns to %functions {
      transform.apply_patterns.vector.lower_contraction lowering_strategy = "outerproduct"
      transform.apply_patterns.vector.lower_outerproduct
    } : !transform.any_op
    transform.yield
  }

  // LLVM 22 offloads such a loop and drops its result. Outline it to a function that runs on the host.
  transform.named_sequence @__mo_keep_reductions_on_host(%root: !transform.any_op {transform.readonly}) {
    %private = transform.param.constant "private" -> !transform.any_param
    %f16_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = f16 in %root : (!transform.any_op) -> !transform.any_op
    %bf16_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = bf16 in %root : (!transform.any_op) -> !transform.any_op
    %f32_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = f32 in %root : (!transform.any_op) -> !transform.any_op
    %f64_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = f64 in %root : (!transform.any_op) -> !transform.any_op
    %i1_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = i1 in %root : (!transform.any_op) -> !transform.any_op
    %i8_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = i8 in %root : (!transform.any_op) -> !transform.any_op
    %i16_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = i16 in %root : (!transform.any_op) -> !transform.any_op
    %i32_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = i32 in %root : (!transform.any_op) -> !transform.any_op
    %i64_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = i64 in %root : (!transform.any_op) -> !transform.any_op
    %index_loops = transform.structured.match ops{["scf.parallel"]} filter_result_type = index in %root : (!transform.any_op) -> !transform.any_op
    %loops = transform.merge_handles %f16_loops, %bf16_loops, %f32_loops, %f64_loops, %i1_loops, %i8_loops, %i16_loops, %i32_loops, %i64_loops, %index_loops : !transform.any_op
    transform.foreach %loops : !transform.any_op {
    ^bb0(%loop: !transform.any_op):
      %function, %call = transform.loop.outline %loop {func_name = "__mo_reduction"} : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
      transform.annotate %function "sym_visibility" = %private : !transform.any_op, !transform.any_param
      %lowered = transform.apply_registered_pass "convert-scf-to-cf" to %function : (!transform.any_op) -> !transform.any_op
      transform.yield
    }
    transform.yield
  }
}
