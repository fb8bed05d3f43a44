#ifndef HEDDLE_RT_DIALECT
#define HEDDLE_RT_DIALECT

include "mlir/IR/OpBase.td"

def Rt_Dialect : Dialect {
  let name = "rt";
  let cppNamespace = "::heddle::rt";
  let summary = "One rank's program: buffers at fixed offsets, queued work, events";
  let description = [{
    What the emitter prints, one op per statement of the emitted C++ and one op
    per entry point of `heddle/Runtime/heddle_rt.h`. Buffers are places in
    arenas, not values: an op that writes takes the place it writes as an
    operand, and order is the order of the text, of streams and of events. One
    text serves every rank; where ranks differ they ask `rt.rank_index`.

    The offset of a buffer is in `rt.buffer`, not in its type: a function is
    called with the buffers of any layer and slot, so its arguments must have a
    type that all of them share.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

#endif // HEDDLE_RT_DIALECT
