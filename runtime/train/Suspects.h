//===- Suspects.h - Where numbers come from that are wrong ----------------===//

#ifndef RUNTIME_TRAIN_SUSPECTS_H
#define RUNTIME_TRAIN_SUSPECTS_H

#include "runtime/train/Rank.h"

#include <string>

namespace heddle::train {

/// Which rank had the first value that is no number (or infinite) in this step,
/// and in which tensor: a state if one has any, else what a rank gave to a
/// reduction; where that is none, the largest of these, whose square or sum may
/// be none. Only where numbers were looked at; "": nothing is found.
/// Collective.
heddle_rt_status findNoNumber(Rank &rank, std::string &text);

/// The same for the largest value that a rank gave to a sum. Collective.
heddle_rt_status findLargest(Rank &rank, std::string &text);

/// CHECK_FAILED on all ranks if one saw a wrong sum; it names the rank whose
/// slice it is. Collective.
heddle_rt_status checkSums(Rank &rank, int64_t step);

/// The state that has memory at an address: "gradient lm_head.weight, element
/// 7", or "".
std::string tensorAt(Rank &rank, const void *address);

} // namespace heddle::train

#endif
