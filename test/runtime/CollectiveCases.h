//===- CollectiveCases.h - Every collective against plain loops -----------===//
//
// The same cases for thread ranks and for MPI ranks. Every rank knows every
// rank's input, so each computes what it must receive.
//
//===----------------------------------------------------------------------===//

#ifndef TEST_RUNTIME_COLLECTIVECASES_H
#define TEST_RUNTIME_COLLECTIVECASES_H

#include "heddle/Runtime/heddle_rt.h"

namespace heddle::test {

/// Runs all cases on this rank's context, over the whole group and over two
/// halves of it. The first difference is HEDDLE_RT_CHECK_FAILED with a
/// sentence.
heddle_rt_status runCollectiveCases(heddle_rt_context *context);

} // namespace heddle::test

#endif
