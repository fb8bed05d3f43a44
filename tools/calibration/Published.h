// Published step times as what the cost model takes: a model, a plan in
// numbers, a cluster, and how the software that was measured runs it.

#ifndef HEDDLE_TOOLS_CALIBRATION_PUBLISHED_H
#define HEDDLE_TOOLS_CALIBRATION_PUBLISHED_H

#include "heddle/Cost/StepTime.h"

#include <map>
#include <string>
#include <vector>

namespace heddle::tool {

/// One row of perf_pool.csv by its columns.
using Row = std::map<std::string, std::string>;

/// Rows of a file with a header; values may stand in quotes, with "" for a
/// quote. An error names file and line.
Result<std::vector<Row>> readCsv(const std::string &path);

struct Published {
  std::string id, source, name;
  ModelConfig model;
  TrainSettings train;
  Cluster cluster;
  PlanPoint point;
  Practice practice;
  double seconds = 0;
  double peakBytes = 0; ///< of memory, of the fullest rank; 0: not printed
  /// Rows of one group differ in their plan alone.
  std::string group;
  std::string assumed; ///< what the row does not say
};

/// An error names the columns that the row lacks, or what the model does not
/// have (a device).
Result<Published> readPublished(const Row &row);

} // namespace heddle::tool

#endif // HEDDLE_TOOLS_CALIBRATION_PUBLISHED_H
