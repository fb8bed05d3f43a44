#include "tools/heddle/Report.h"

#include <algorithm>
#include <map>

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

/// [seconds, bytes of each reason].
static json pointJson(const MemoryPoint &moment,
                      const std::vector<std::string> &reasons) {
  std::map<std::string, std::int64_t> bytes;
  for (const auto &[reason, of] : moment.memory.byReason())
    bytes[reason] = of;
  json point = {roundedSeconds(moment.seconds)};
  for (const std::string &reason : reasons)
    point.push_back(bytes[reason]);
  return point;
}

Result<json> tool::memoryCurvesJson(const StepTimeline &timeline,
                                    const PlanPoint &point,
                                    const PlanSearch &search) {
  std::vector<PlaceMemory> peaks;
  std::vector<std::string> reasons; // each that any place has
  for (std::int64_t place = 0; place < point.pp; ++place) {
    Result<PlaceMemory> peak = search.memory.at(point, place);
    if (!peak)
      return peak.error();
    for (const auto &[reason, bytes] : peak->byReason())
      if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end())
        reasons.push_back(reason);
    peaks.push_back(*std::move(peak));
  }
  json places = json::array();
  for (std::size_t place = 0; place < peaks.size(); ++place) {
    json points = json::array(), peak = json::object();
    for (const MemoryPoint &moment :
         memoryOverTime(peaks[place], timeline.table.rows[place],
                        timeline.timing.slots[place]))
      points.push_back(pointJson(moment, reasons));
    for (const auto &[reason, bytes] : peaks[place].byReason())
      peak[reason] = bytes;
    places.push_back({{"peak_bytes", peaks[place].bytes()},
                      {"peak", std::move(peak)},
                      {"points", std::move(points)}});
  }
  return json{{"capacity_bytes", search.problem.cluster.planBytesPerDevice()},
              {"reasons", reasons},
              {"places", std::move(places)}};
}
