// The emitted text is also CUDA: compiled, not run.
//
// REQUIRES: nvcc
// RUN: sed -e 's/@RANKS@/2/g' -e 's/@F@/8/g' %S/Mlp.mlir.in > %t.mlir
// RUN: heddle-translate --emit-program %t.mlir --program-folder=%t
// RUN: nvcc -x cu -std=c++20 -gencode arch=compute_90a,code=sm_90a -fmad=false -Werror all-warnings -I%source/include -c %t/step.cpp -o %t/step.o
// RUN: nvcc -x cu -std=c++20 -gencode arch=compute_90a,code=sm_90a -fmad=false -Werror all-warnings -I%source/include -c %t/kernels.cpp -o %t/kernels.o
// RUN: heddle-translate --emit-program %S/emit-dropout.mlir --program-folder=%t.dropout
// RUN: nvcc -x cu -std=c++20 -gencode arch=compute_90a,code=sm_90a -fmad=false -Werror all-warnings -I%source/include -c %t.dropout/step.cpp -o %t.dropout/step.o
// RUN: nvcc -x cu -std=c++20 -gencode arch=compute_90a,code=sm_90a -fmad=false -Werror all-warnings -I%source/include -c %t.dropout/kernels.cpp -o %t.dropout/kernels.o
// RUN: heddle-translate --emit-program %S/emit-stages.mlir --program-folder=%t.stages
// RUN: nvcc -x cu -std=c++20 -gencode arch=compute_90a,code=sm_90a -fmad=false -Werror all-warnings -I%source/include -c %t.stages/step.cpp -o %t.stages/step.o
