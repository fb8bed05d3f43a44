//===- Guard.h - A process that sees how a rank ended ---------------------===//

#ifndef RUNTIME_TRAIN_GUARD_H
#define RUNTIME_TRAIN_GUARD_H

namespace heddle::train {

/// Where somebody watches this run (kFlightVariable), a child goes on as the
/// rank and this process waits for it: it passes signals on, leaves the one
/// that ended the rank in the folder before a launcher can see it and end the
/// other ranks too, and ends in the same way. The rank does not outlive it.
/// To be called before any thread is started and anything is opened.
void guardRank();

} // namespace heddle::train

#endif
