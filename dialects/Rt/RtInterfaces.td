#ifndef HEDDLE_RT_INTERFACES
#define HEDDLE_RT_INTERFACES

include "mlir/IR/OpBase.td"

def Rt_WorkOpInterface : OpInterface<"WorkOpInterface"> {
  let cppNamespace = "::heddle::rt";
  let description = [{
    Work queued on a stream. What it touches is all that the checks of order and
    of arenas know about it.
  }];
  let methods = [
    InterfaceMethod<"The stream it is queued on.", "::llvm::StringRef", "getStreamName", (ins), [{
      return $_op.getStream();
    }]>,
    InterfaceMethod<"What people call it: op and layer.", "::llvm::StringRef", "getLabel", (ins), [{
      return $_op.getLabel();
    }]>,
    InterfaceMethod<"The bytes it reads and writes.", "::llvm::SmallVector<Access>", "getAccesses">
  ];
}

#endif // HEDDLE_RT_INTERFACES
