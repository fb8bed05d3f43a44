//===- Inspect.h - What tools may look at inside a context ----------------===//

#ifndef RUNTIME_RANKS_INSPECT_H
#define RUNTIME_RANKS_INSPECT_H

#include "heddle/Runtime/heddle_rt.h"
#include "runtime/common/Flight.h"
#include "runtime/common/Trace.h"
#include "runtime/ranks/Integrity.h"

#include <string>

namespace heddle::ranks {

/// What a recording context saw so far. Allocations and communicators are kept
/// in every mode, calls only while recording.
const runtime::Trace &traceOf(const heddle_rt_context *context);

/// Where a rank tells who watches it how far it is.
runtime::Flight &flightOf(heddle_rt_context *context);

/// What the context keeps to queue work again, in words; "" where nothing.
std::string graphsOf(const heddle_rt_context *context);

/// What a rank looks at in sums. Backends whose library sums look at nothing.
Integrity &integrityOf(heddle_rt_context *context);

} // namespace heddle::ranks

#endif
