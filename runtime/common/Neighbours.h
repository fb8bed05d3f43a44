//===- Neighbours.h - Ranks of this job on this machine ---------*- C++ -*-===//
//
// A rank that is stopped answers nobody, and who waits for it cannot ask it.
// The operating system knows: processes of one machine see each other, without
// a message and whatever the others do. Of ranks elsewhere nothing is known.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_COMMON_NEIGHBOURS_H
#define RUNTIME_COMMON_NEIGHBOURS_H

#include <string>

namespace heddle::runtime {

/// "rank 2 (process 4711) is stopped by a signal or a debugger; ..."; "" where
/// none is, of the processes of this program that the same launch has started.
std::string stoppedRanks();

} // namespace heddle::runtime

#endif
