// What does not fit is refused; nothing is written.
//
// RUN: not heddle-translate --import-model %source/test/numerics/fixtures/gpt2/config.json --sequence-length=41 2>&1 | FileCheck %s --check-prefix=LONG
// RUN: heddle-translate --import-model %source/test/numerics/fixtures/gpt2/config.json --sequence-length=40 | FileCheck %s --check-prefix=FITS
// RUN: not heddle-translate --import-model %source/test/numerics/fixtures/llama/config.json --sequences=0 2>&1 | FileCheck %s --check-prefix=SEQUENCES
// RUN: not heddle-translate --import-model %source/test/numerics/fixtures/llama/config.json --sequence-length=-1 2>&1 | FileCheck %s --check-prefix=TOKENS
// RUN: not heddle-translate --import-model %source/test/numerics/fixtures/llama/config.json --micro-batches=0 2>&1 | FileCheck %s --check-prefix=BATCHES
// RUN: sed 's/"resid_pdrop": 0.0/"resid_pdrop": 1.0/' %source/test/numerics/fixtures/gpt2/config.json > %t.json
// RUN: not heddle-translate --import-model %t.json 2>&1 | FileCheck %s --check-prefix=DROPOUT
// RUN: sed 's/"llama"/"mamba"/' %source/test/numerics/fixtures/llama/config.json > %t.json
// RUN: not heddle-translate --import-model %t.json 2>&1 | FileCheck %s --check-prefix=FAMILY

// LONG: error: {{.*}}a sequence of 41 tokens is longer than the model's 40 learned positions
// LONG-NOT: module
// FITS: func.func @embedding(
// SEQUENCES: error: {{.*}}the number of sequences of a micro-batch must be at least 1, got 0
// SEQUENCES-NOT: module
// TOKENS: error: {{.*}}the number of tokens of a sequence must be at least 1, got -1
// BATCHES: error: {{.*}}the number of micro-batches must be at least 1, got 0
// DROPOUT: error: {{.*}}resid_pdrop{{.*}}of at least 0 and below 1
// FAMILY: error: {{.*}}.json:{{[0-9]+}}: {{.*}}mamba
