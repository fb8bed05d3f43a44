// Heddle's tools read text alone: bytecode is upstream's to check.

// RUN: printf 'ML\357R' > %t
// RUN: not heddle-opt %t 2>&1 | FileCheck %s
// RUN: not heddle-opt < %t 2>&1 | FileCheck %s
// RUN: not heddle-translate --emit-program %t 2>&1 | FileCheck %s
// CHECK: error: {{.*}}: found MLIR bytecode, expected a module as text
// CHECK-NOT: error:

// RUN: not heddle-opt --emit-bytecode %s 2>&1 | FileCheck %s --check-prefix=EMIT
// EMIT: error: --emit-bytecode: found a form that heddle's tools do not read, expected text
