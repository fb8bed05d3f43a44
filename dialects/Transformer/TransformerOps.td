#ifndef HEDDLE_TRANSFORMER_OPS
#define HEDDLE_TRANSFORMER_OPS

include "dialects/Transformer/TransformerMathOps.td"
include "dialects/Transformer/TransformerLossOps.td"
include "dialects/Transformer/TransformerStepOps.td"

#endif // HEDDLE_TRANSFORMER_OPS
