#ifndef HEDDLE_TRANSFORMER_DIALECT
#define HEDDLE_TRANSFORMER_DIALECT

include "dialects/Dist/DistInterfaces.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Transformer_Dialect : Dialect {
  let name = "transformer";
  let cppNamespace = "::heddle::transformer";
  let summary = "A Transformer and its training step as ops on whole tensors";
  let description = [{
    Ops on whole tensors that know nothing of devices; where the ranks come in,
    they do so through the layouts of types and each op's factor rule.

    Factors have one letter each everywhere: `b` sequences, `s` query position,
    `t` key position, `d` hidden, `g` KV heads, `r` query heads per KV head, `k`
    head size, `f` ffn, `v` vocabulary.

    Every value has a name, in the attribute `as` of its op (`transformer.as` on
    a function's argument), printed as its SSA name; the gradient of `v` is
    `d_v`. Names are unique in a function: what forward saves for backward is
    matched by name.
  }];
  let dependentDialects = ["::heddle::dist::DistDialect", "::mlir::func::FuncDialect"];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

def Transformer_StackType : TypeDef<Transformer_Dialect, "Stack"> {
  let mnemonic = "stack";
  let summary = "A tensor per iteration of a loop: per layer or per micro-batch";
  let description = [{
    ```mlir
    !saved = !transformer.stack<126 x tensor<4x32x64xf32>>
    ```
  }];
  let parameters = (ins "int64_t":$count, "::mlir::RankedTensorType":$elementType);
  let assemblyFormat = "`<` $count `x` $elementType `>`";
}

def Transformer_Llama3ScalingAttr : AttrDef<Transformer_Dialect, "Llama3Scaling"> {
  let mnemonic = "llama3_scaling";
  let summary = "Llama 3.1's stretching of rotary frequencies";
  let description = [{
    With wavelength `w = 2 pi / frequency` and original context `c`: a frequency
    stays where `w < c / high_frequency_factor`, is divided by `factor` where
    `w > c / low_frequency_factor`, and is interpolated between, linearly in
    `c / w`.
  }];
  let parameters = (ins "::mlir::FloatAttr":$factor, "::mlir::FloatAttr":$lowFrequencyFactor,
                        "::mlir::FloatAttr":$highFrequencyFactor, "int64_t":$originalContext);
  let assemblyFormat = "`<` struct(params) `>`";
}

class Transformer_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::heddle::transformer";
}

def Transformer_Activation : Transformer_Enum<"Activation", "elementwise nonlinearity", [
  I32EnumAttrCase<"Silu", 0, "silu">, I32EnumAttrCase<"GeluTanh", 1, "gelu_tanh">,
  I32EnumAttrCase<"GeluErf", 2, "gelu_erf">, I32EnumAttrCase<"Relu", 3, "relu">]>;

// Which of the dropouts of a layer, or of what stands before the layers: equal
// elements at two sites are dropped independently of each other.
def Transformer_DropoutSite : Transformer_Enum<"DropoutSite", "where a model drops out", [
  I32EnumAttrCase<"Embedding", 0, "embedding">, I32EnumAttrCase<"Attention", 1, "attention">,
  I32EnumAttrCase<"AttentionOutput", 2, "attention_output">,
  I32EnumAttrCase<"MlpOutput", 3, "mlp_output">]>;

def Transformer_StateKind : Transformer_Enum<"StateKind", "what a state is for", [
  I32EnumAttrCase<"Parameter", 0, "parameter">,
  I32EnumAttrCase<"GradientSum", 1, "gradient_sum">,
  I32EnumAttrCase<"Gradient", 2, "gradient">,
  I32EnumAttrCase<"AdamM", 3, "adam_m">, I32EnumAttrCase<"AdamV", 4, "adam_v">,
  I32EnumAttrCase<"Gathered", 5, "gathered">, // a whole copy, for a while
  I32EnumAttrCase<"Master", 6, "master">,   // what a parameter is rounded from
  I32EnumAttrCase<"Scaling", 7, "scaling">, // what scales of formats are made of
  I32EnumAttrCase<"Amax", 8, "amax">]>;     // largest magnitudes of one step

def Transformer_Initializer : Transformer_Enum<"Initializer", "how a parameter begins", [
  I32EnumAttrCase<"Zeros", 0, "zeros">, I32EnumAttrCase<"Ones", 1, "ones">,
  I32EnumAttrCase<"Normal", 2, "normal">]>;

class Transformer_Op<string mnemonic, list<Trait> traits = []>
    : Op<Transformer_Dialect, mnemonic,
         !listconcat([DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>], traits)> {
  code nameResults = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      ::heddle::transformer::nameResults(*this, setName);
    }
  }];
  let extraClassDefinition = nameResults;
}

// An op on tensors with a factor rule that depends on nothing.
class Transformer_RuleOp<string mnemonic, string rule, list<Trait> traits = []>
    : Transformer_Op<mnemonic, !listconcat(
          [Pure, DeclareOpInterfaceMethods<Dist_FactorRuleOpInterface>], traits)> {
  let extraClassDefinition = nameResults # [{
    std::string $cppClass::getFactorRule() { return "}] # rule # [{"; }
  }];
}

// An op whose rule is computed in C++.
class Transformer_ComputedRuleOp<string mnemonic, list<Trait> traits = []>
    : Transformer_Op<mnemonic, !listconcat(
          [Pure, DeclareOpInterfaceMethods<Dist_FactorRuleOpInterface>], traits)>;

defvar HasGradient = DeclareOpInterfaceMethods<Dist_GradientOpInterface>;
defvar HasCost = DeclareOpInterfaceMethods<Dist_CostOpInterface>;

def Transformer_Tensor : RankedTensorOf<[AnyFloat, I8, I32, I64]>;
def Transformer_Float : RankedTensorOf<[AnyFloat]>;
def Transformer_Integer : RankedTensorOf<[I32]>;
def Transformer_Mask : RankedTensorOf<[I8]>;
def Transformer_Count : RankedTensorOf<[I64]>;

#endif // HEDDLE_TRANSFORMER_DIALECT
