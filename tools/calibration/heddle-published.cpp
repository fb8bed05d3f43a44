// Predicted against published step times. Usage: heddle-published FILE.csv
// [--rows] [--ratios]
//
// Files: perf_calibration_12.csv, perf_pool.csv of the validation data. One
// line per source: rows, mean and largest error of step times, and of memory
// where it is printed; runs that the estimate of memory calls impossible. With
// --rows each row, with --ratios those of rows that differ in their plan alone.
// Nothing is fitted to these times.

#include "Published.h"

#include "heddle/Cost/MemoryEstimate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace heddle;
using namespace heddle::tool;

namespace {

struct Predicted {
  Published row;
  StepTime step;
  double peakBytes = 0; ///< as Heddle's programs would need

  double error() const { return step.seconds / row.seconds - 1; }
};

struct Errors {
  int rows = 0;
  double sum = 0, size = 0, largest = 0;
  std::string worst;

  void add(const std::string &id, double error) {
    ++rows;
    sum += error;
    size += std::fabs(error);
    if (std::fabs(error) >= largest) {
      largest = std::fabs(error);
      worst = id;
    }
  }
};

Result<Predicted> predict(Published row) {
  Result<StepTimes> times =
      StepTimes::of(row.model, row.train, row.cluster, row.practice);
  Result<StepTime> step =
      times ? times->simulate(row.point) : Result<StepTime>(times.error());
  if (!step)
    return Error{fmt::format("{}: {}", row.id, step.message())};
  Predicted predicted;
  const MemoryEstimator memory(row.model, row.train, row.cluster);
  if (auto peak = memory.peak(row.point))
    predicted.peakBytes = static_cast<double>(peak->first);
  predicted.row = std::move(row);
  predicted.step = *step;
  return predicted;
}

void print(const std::string &name, const Errors &errors) {
  fmt::print("{:<58} {:4} {:+7.1f} {:7.1f} {:7.1f} {}\n", name.substr(0, 58),
             errors.rows, 100 * errors.sum / errors.rows,
             100 * errors.size / errors.rows, 100 * errors.largest,
             errors.worst);
}

void printRow(const Predicted &predicted) {
  const Published &row = predicted.row;
  const StepTime &step = predicted.step;
  fmt::print("{} {:<16} {:<36} {:9.3f} {:9.3f} {:+6.1f} %  bubble {:4.1f} % "
             "exposed",
             row.id, row.name.substr(0, 16), row.point.text().substr(0, 36),
             row.seconds, step.seconds, 100 * predicted.error(),
             100 * step.bubbleFraction);
  for (int axis = 0; axis < timeAxes; ++axis)
    if (step.axes[static_cast<std::size_t>(axis)].exposed > 0)
      fmt::print(" {} {:.3f}", timeAxisName(static_cast<TimeAxis>(axis)),
                 step.axes[static_cast<std::size_t>(axis)].exposed);
  fmt::print("; products {:.3f} attention {:.3f} memory {:.3f} optimizer "
             "{:.3f}; peak {:.1f} GiB{}\n",
             step.compute.products, step.compute.attention, step.compute.memory,
             step.optimizer, predicted.peakBytes / (1 << 30),
             row.assumed.empty() ? "" : "; assumed: " + row.assumed);
}

/// Each row of a group over the one before it.
void printRatios(const std::vector<Predicted> &all) {
  std::map<std::string, std::vector<const Predicted *>> groups;
  for (const Predicted &each : all)
    groups[each.row.group].push_back(&each);
  Errors errors;
  for (const auto &[name, rows] : groups)
    for (std::size_t i = 1; i < rows.size(); ++i) {
      const Predicted &before = *rows[i - 1], &row = *rows[i];
      const double published = row.row.seconds / before.row.seconds,
                   predicted = row.step.seconds / before.step.seconds;
      fmt::print("{} over {}: published {:.3f}, predicted {:.3f}, {:+.1f} "
                 "points\n",
                 row.row.id, before.row.id, published, predicted,
                 100 * (predicted - published));
      errors.add(row.row.id, predicted - published);
    }
  if (errors.rows)
    print("ratios inside groups (points)", errors);
}

void printMemory(const std::vector<Predicted> &all) {
  std::map<std::string, Errors> bySource;
  std::vector<std::string> impossible;
  for (const Predicted &each : all) {
    if (each.row.peakBytes > 0 && each.peakBytes > 0)
      bySource[each.row.source].add(each.row.id,
                                    each.peakBytes / each.row.peakBytes - 1);
    const auto capacity =
        static_cast<double>(each.row.cluster.planBytesPerDevice());
    if (each.peakBytes > capacity)
      impossible.push_back(fmt::format("{} ({:.1f} of {:.1f} GiB)", each.row.id,
                                       each.peakBytes / (1 << 30),
                                       capacity / (1 << 30)));
  }
  for (const auto &[name, errors] : bySource)
    print("memory: " + name, errors);
  fmt::print("{} runs do not fit by the estimate: {}\n", impossible.size(),
             fmt::join(impossible, ", "));
}

void printTimes(const std::vector<Predicted> &all) {
  std::map<std::string, Errors> bySource, byGroup;
  for (const Predicted &each : all) {
    bySource[each.row.source].add(each.row.id, each.error());
    // What the goals are told apart by: "bf16 H100".
    byGroup[fmt::format("{} {}", each.row.point.recipe,
                        each.row.cluster.device.name.substr(0, 4))]
        .add(each.row.id, each.error());
  }
  fmt::print("{:<58} rows  signed    mean largest (%)\n", "");
  for (const auto &[name, errors] : bySource)
    print(name, errors);
  for (const auto &[name, errors] : byGroup)
    print(name, errors);
}

int fail(const std::string &message) {
  fmt::print(stderr, "error: {}\n", message);
  return 2;
}

} // namespace

int main(int argc, char **argv) {
  const std::vector<std::string> options(argv + std::min(argc, 2), argv + argc);
  const auto unknown = std::ranges::find_if(options, [](const auto &option) {
    return option != "--rows" && option != "--ratios";
  });
  if (argc < 2 || unknown != options.end())
    return fail("usage: heddle-published FILE.csv [--rows] [--ratios]");
  auto has = [&](const char *option) {
    return std::ranges::find(options, option) != options.end();
  };
  Result<std::vector<Row>> rows = readCsv(argv[1]);
  if (!rows)
    return fail(rows.message());
  std::vector<Predicted> all;
  for (const Row &row : *rows) {
    Result<Published> published = readPublished(row);
    if (!published)
      continue;
    Result<Predicted> predicted = predict(std::move(*published));
    if (!predicted)
      return fail(predicted.message());
    all.push_back(std::move(*predicted));
    if (has("--rows"))
      printRow(all.back());
  }
  if (has("--ratios"))
    printRatios(all);
  printTimes(all);
  printMemory(all);
  fmt::print("{} rows are not plan-complete or not of a device that is known\n",
             rows->size() - all.size());
  return 0;
}
