// Predicted against published step times. Usage: heddle-published FILE.csv
// [--rows]
//
// Files: perf_calibration_12.csv, perf_pool.csv of the validation data. One
// line per source: rows, mean and largest error; with --rows each row. Nothing
// is fitted to these times.

#include "Published.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace heddle;
using namespace heddle::tool;

namespace {

struct Errors {
  int rows = 0;
  double sum = 0, size = 0, largest = 0;
  std::string worst;

  void add(const Published &published, double error) {
    ++rows;
    sum += error;
    size += std::fabs(error);
    if (std::fabs(error) >= largest) {
      largest = std::fabs(error);
      worst = published.id;
    }
  }
};

/// What the goals are told apart by: "bf16 H100".
std::string groupOf(const Published &published) {
  return fmt::format("{} {}", published.point.recipe,
                     published.cluster.device.name.substr(0, 4));
}

void print(const std::string &name, const Errors &errors) {
  fmt::print("{:<58} {:4} {:+7.1f} {:7.1f} {:7.1f} {}\n", name.substr(0, 58),
             errors.rows, 100 * errors.sum / errors.rows,
             100 * errors.size / errors.rows, 100 * errors.largest,
             errors.worst);
}

void printRow(const Published &published, const StepTime &step, double error) {
  fmt::print("{} {:<16} {:<36} {:9.3f} {:9.3f} {:+6.1f} %  bubble {:4.1f} % "
             "exposed",
             published.id, published.name.substr(0, 16),
             published.point.text().substr(0, 36), published.seconds,
             step.seconds, 100 * error, 100 * step.bubbleFraction);
  for (int axis = 0; axis < timeAxes; ++axis)
    if (step.axes[static_cast<std::size_t>(axis)].exposed > 0)
      fmt::print(" {} {:.3f}", timeAxisName(static_cast<TimeAxis>(axis)),
                 step.axes[static_cast<std::size_t>(axis)].exposed);
  fmt::print("; products {:.3f} attention {:.3f} memory {:.3f} optimizer "
             "{:.3f}{}\n",
             step.compute.products, step.compute.attention, step.compute.memory,
             step.optimizer,
             published.assumed.empty() ? ""
                                       : "; assumed: " + published.assumed);
}

int fail(const std::string &message) {
  fmt::print(stderr, "error: {}\n", message);
  return 2;
}

} // namespace

int main(int argc, char **argv) {
  const bool eachRow = argc == 3 && std::string(argv[2]) == "--rows";
  if (argc != 2 && !eachRow)
    return fail("usage: heddle-published FILE.csv [--rows]");
  Result<std::vector<Row>> rows = readCsv(argv[1]);
  if (!rows)
    return fail(rows.message());
  std::map<std::string, Errors> bySource, byGroup;
  int left = 0;
  for (const Row &row : *rows) {
    Result<Published> published = readPublished(row);
    if (!published) {
      ++left;
      continue;
    }
    Result<StepTimes> times =
        StepTimes::of(published->model, published->train, published->cluster,
                      published->practice);
    Result<StepTime> step = times ? times->simulate(published->point)
                                  : Result<StepTime>(times.error());
    if (!step)
      return fail(fmt::format("{}: {}", published->id, step.message()));
    const double error = step->seconds / published->seconds - 1;
    bySource[published->source].add(*published, error);
    byGroup[groupOf(*published)].add(*published, error);
    if (eachRow)
      printRow(*published, *step, error);
  }
  fmt::print("{:<58} rows  signed    mean largest (%)\n", "");
  for (const auto &[name, errors] : bySource)
    print(name, errors);
  for (const auto &[name, errors] : byGroup)
    print(name, errors);
  fmt::print("{} rows are not plan-complete or not of a device that is known\n",
             left);
  return 0;
}
