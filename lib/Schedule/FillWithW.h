// Puts weight gradients where a rank would idle.

#ifndef HEDDLE_LIB_SCHEDULE_FILLWITHW_H
#define HEDDLE_LIB_SCHEDULE_FILLWITHW_H

#include "Generators.h"

namespace heddle::detail {

/// `orders`: per rank its F and B, in an order that can run. Runs them with all
/// slots of one length; a W that is owed, oldest first, runs where the next F
/// or B cannot yet, and before an F that would bring more than `mostInFlight`
/// micro-batches x chunks into flight. Adds O.
std::vector<SlotRow> fillWithW(const Placement &placement,
                               std::int64_t microBatches,
                               std::vector<SlotRow> orders,
                               std::int64_t mostInFlight);

} // namespace heddle::detail

#endif // HEDDLE_LIB_SCHEDULE_FILLWITHW_H
