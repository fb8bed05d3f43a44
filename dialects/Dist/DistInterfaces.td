#ifndef HEDDLE_DIST_INTERFACES
#define HEDDLE_DIST_INTERFACES

include "mlir/IR/OpBase.td"

def Dist_FactorRuleOpInterface : OpInterface<"FactorRuleOpInterface"> {
  let cppNamespace = "::heddle::dist";
  let description = [{
    States once which dimensions of operands and results are the same *factor*,
    which factors are reduced and how, and in which operands the op is linear.
    Verification, propagation, partitioning and cost read this rule and know
    nothing else of the op.

    The rule is text: per operand its factors, `->`, per result its factors, and
    marks separated by `;`:

    - `sum f g`, `max f`: reduced where missing in a result; a result without a
      summed factor that is split becomes partial;
    - `whole f`: may not be split, and not be stored with padding;
    - `padded f`: may be stored with padding all the same: another operand tells
      the op what is padding;
    - `position f g`: the op must know which part of `f` and of `g` it has (after
      partitioning its attribute `shards` has a `#dist.shard` for each of them of
      which a rank does not simply hold the whole);
    - `linear i j`: a partial sum in operand i passes to the results;
    - `additive`: all operands are partial over the same axes, or none is;
    - `...` stands for the same factors wherever it is written.

    Constraints on every op with a rule:

    - (F1) each operand and result has as many dimensions as the rule says;
    - (F2) a factor has one size, and one stored size, in all of them;
    - (F3) a factor is cut by the same axes in every operand that has it;
    - (F4) no axis cuts two factors, and none that is `whole`;
    - (F5) an operand is partial only where the rule is linear or additive in it;
    - (F6) each result has the layout that follows from the operands; a factor
      that no operand has is cut as the result says;
    - (F7) `shards`, where the op has it, names factors with the mark `position`.
    - (F8) where one tensor is in runs, all tensors have its dimensions and its
      runs; a result has them too, or is a sum over all dimensions.
  }];
  let methods = [
    InterfaceMethod<"The rule as text.", "std::string", "getFactorRule">
  ];
  let verify = [{ return ::heddle::dist::verifyFactors($_op); }];
}

def Dist_GradientOpInterface : OpInterface<"GradientOpInterface"> {
  let cppNamespace = "::heddle::dist";
  let description = [{
    Reverse mode for one op: from the gradients of its results (null where a
    result does not matter), the gradients of its operands (null where there is
    none), built as ordinary ops. Gradients have the type of their value. An op
    that cannot emits an error and returns nothing.
  }];
  let methods = [
    InterfaceMethod<"Builds the gradients of the operands, one entry each.",
      "::llvm::SmallVector<::mlir::Value>", "buildGradient",
      (ins "::mlir::OpBuilder &":$builder,
           "::llvm::ArrayRef<::mlir::Value>":$resultGradients)>
  ];
}

def Dist_CostOpInterface : OpInterface<"CostOpInterface"> {
  let cppNamespace = "::heddle::dist";
  let description = [{
    Floating-point operations that the op needs on tensors of the sizes its types
    name (global before partitioning, one rank's after): multiplications and
    additions of matrix products and attention, 2 per multiply-add. Other ops
    count 0: they are bound by memory.
  }];
  let methods = [
    InterfaceMethod<"Operations of one execution.", "int64_t", "getFlops">
  ];
}

#endif // HEDDLE_DIST_INTERFACES
