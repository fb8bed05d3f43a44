//===- Rt.h - one rank's program: buffers, queued work, events --*- C++ -*-===//
//
// The one header of the rt dialect.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DIALECTS_RT_RT_H
#define HEDDLE_DIALECTS_RT_RT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace heddle::rt {

/// What one piece of work touches through one of its operands: of the bytes
/// b in [0, span), counted from the address of `buffer`, those with
/// b mod period < run. All of them where run == period.
struct Access {
  mlir::Value buffer;
  bool reads = false, writes = false;
  int64_t span = 0, run = 1, period = 1;
};

} // namespace heddle::rt

#include "dialects/Rt/RtDialect.h.inc"
#include "dialects/Rt/RtEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Rt/RtAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Rt/RtTypes.h.inc"

#include "dialects/Rt/RtInterfaces.h.inc"

#define GET_OP_CLASSES
#include "dialects/Rt/RtOps.h.inc"

namespace heddle::rt {

/// The whole of a contiguous or strided buffer, as one access.
Access accessWhole(mlir::Value buffer, bool reads, bool writes);

/// Where row r of a launch lies: row ((r / group) mod period) of those in
/// memory, `pitch` elements apart. period 0: no mod; pitch 0: the columns.
struct RowForm {
  int64_t pitch = 0, group = 1, period = 0;
};

/// The form of a buffer of rows x columns elements (`columns` 1 for one element
/// per row), or failure where its strides have no such form.
mlir::FailureOr<RowForm> getRowForm(BufType type, int64_t columns);

/// Bytes of workspace that a launch of `kernel` needs; 0: it takes none.
int64_t getWorkspaceBytes(KernelOp kernel, int64_t rows, int64_t columns);

/// The name of an event of a row of them, "gathered[1]". No event of its own
/// has such a name.
std::string eventInRow(llvm::StringRef row, int64_t slot);

/// Whether `name` can be an identifier of the emitted C++.
bool isIdentifier(llvm::StringRef name);

} // namespace heddle::rt

#endif // HEDDLE_DIALECTS_RT_RT_H
