// GPT-2's four dropouts: on what goes into the first block (one mask on both of
// its terms), on probabilities, and on both branches before they are added.
//
// RUN: sed 's/_pdrop": 0.0/_pdrop": 0.25/' %source/test/numerics/fixtures/gpt2/config.json > %t.json
// RUN: heddle-translate --import-model %t.json --sequence-length=8 | FileCheck %s
// RUN: heddle-translate --import-model %source/test/numerics/fixtures/gpt2/config.json --sequence-length=8 | FileCheck %s --check-prefix=NONE

// NONE-NOT: dropout
// NONE-NOT: token_numbers

// CHECK-LABEL: func.func @embedding(
// CHECK-SAME: transformer.as = "token_numbers"
// CHECK-SAME: transformer.as = "dropout_seed"
// CHECK: %embedded = transformer.embedding
// CHECK-NEXT: %x = transformer.dropout %embedded, %{{arg[0-9]+}}, %{{arg[0-9]+}} rate 2.500000e-01 site embedding
// CHECK: %placed = transformer.embedding
// CHECK-NEXT: %delta = transformer.dropout %placed, %{{arg[0-9]+}}, %{{arg[0-9]+}} rate 2.500000e-01 site embedding
// CHECK-LABEL: func.func @block(
// CHECK: %o, %lse = transformer.attention {{.*}} dropout 2.500000e-01(%{{arg[0-9]+}}, %{{arg[0-9]+}})
// CHECK: %a_dropped = transformer.dropout %a, %{{arg[0-9]+}}, %{{arg[0-9]+}} rate 2.500000e-01 site attention_output
// CHECK: %x2 = transformer.add %x1, %a_dropped
// CHECK: %dn_dropped = transformer.dropout %dn, %{{arg[0-9]+}}, %{{arg[0-9]+}} rate 2.500000e-01 site mlp_output
// CHECK: return %x2, %dn_dropped
// CHECK-LABEL: func.func @head(
// CHECK-NOT: dropout
