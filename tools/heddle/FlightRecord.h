//===- FlightRecord.h - What ranks did last, for people and files ---------===//

#ifndef HEDDLE_TOOLS_FLIGHTRECORD_H
#define HEDDLE_TOOLS_FLIGHTRECORD_H

#include "heddle/Supervisor/Watch.h"
#include "heddle/Support/Result.h"

#include <string>
#include <vector>

namespace heddle::tool {

/// A line for each of the first ranks: where it is.
std::string reportOf(const std::vector<supervisor::RankView> &views);

/// Appends one JSON line (tools/heddle/README.md has its form).
Result<void> appendRecord(const std::string &path, int64_t restarts,
                          const supervisor::Verdict &verdict,
                          const std::vector<supervisor::RankView> &views);

/// Appends a line of how a life ended.
Result<void> appendEnd(const std::string &path, int64_t restarts, int code,
                       int64_t step, int64_t windows);

} // namespace heddle::tool

#endif
