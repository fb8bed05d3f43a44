// The dialect of the plug-in: an op, and the one its gradient needs.

include "dialects/Dist/DistInterfaces.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Example_Dialect : Dialect {
  let name = "example";
  let cppNamespace = "::example";
  let summary = "Ops that Heddle does not know";
}

class Example_Op<string mnemonic, list<Trait> traits = []>
    : Op<Example_Dialect, mnemonic, !listconcat(traits, [
          Pure, DeclareOpInterfaceMethods<Dist_FactorRuleOpInterface>])>;

def Example_Float : RankedTensorOf<[AnyFloat]>;

def Example_LayerScaleOp : Example_Op<"layer_scale", [DeclareOpInterfaceMethods<Dist_GradientOpInterface>]> {
  let summary = "What a layer adds to the residual stream, scaled per channel";
  let arguments = (ins Example_Float:$input, Example_Float:$scale);
  let results = (outs Example_Float:$result);
  let assemblyFormat = "$input `,` $scale attr-dict `:` functional-type(operands, results)";
}

def Example_LayerScaleGradOp : Example_Op<"layer_scale_grad"> {
  let summary = "Gradient of the scales";
  let arguments = (ins Example_Float:$resultGradient, Example_Float:$input);
  let results = (outs Example_Float:$result);
  let assemblyFormat = "$resultGradient `,` $input attr-dict `:` functional-type(operands, results)";
}
