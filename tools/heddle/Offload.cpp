//===- Offload.cpp - whether saved values on the host pay -----------------===//

#include "tools/heddle/Offload.h"

#include "tools/heddle/Memory.h"

#include <fmt/format.h>

using namespace heddle;
using json = nlohmann::ordered_json;

Result<OffloadTime> tool::offloadTimeOf(const Inputs &inputs) {
  return offloadTime(inputs.model, *inputs.train, *inputs.cluster,
                     *inputs.plan);
}

json tool::offloadJson(const OffloadTime &time) {
  return {{"layer_bytes", time.layerBytes},
          {"bytes_each_way", time.bytesEachWay},
          {"link_bytes_per_second", time.bytesPerSecond},
          {"copy_seconds", time.copySeconds},
          {"forward_seconds", time.forwardSeconds},
          {"backward_seconds", time.backwardSeconds},
          {"exposed_seconds", time.exposedSeconds},
          {"hidden", time.isHidden()}};
}

void tool::printOffload(const json &offload) {
  const auto number = [&](const char *key) {
    return offload[key].get<double>();
  };
  fmt::print(
      "\nsaved values on the host\n"
      "  {} of a layer and micro-batch, {} a step each way, over {:g} "
      "GB/s\n"
      "  a layer's copy takes {:.3g} s; beside it forward computes {:.3g} "
      "s, backward {:.3g} s; {:.3g} s of a step are not hidden\n",
      describeBytes(number("layer_bytes")),
      describeBytes(number("bytes_each_way")),
      number("link_bytes_per_second") / 1e9, number("copy_seconds"),
      number("forward_seconds"), number("backward_seconds"),
      number("exposed_seconds"));
}

std::optional<std::string> tool::offloadWarning(const Inputs &inputs) {
  if (inputs.plan->offload.saved.empty() || !inputs.cluster)
    return std::nullopt;
  const Result<OffloadTime> time = offloadTimeOf(inputs);
  if (!time || time->isHidden())
    return std::nullopt;
  return fmt::format(
      "offload.saved: a layer's copy of {} takes {:.3g} s over {:g} GB/s to "
      "the "
      "host, longer than what a layer computes beside it ({:.3g} s forward, "
      "{:.3g} s backward): {:.3g} s of a step are not hidden; keep some of the "
      "values on the device, or compute them again",
      describeBytes(time->layerBytes), time->copySeconds,
      time->bytesPerSecond / 1e9, time->forwardSeconds, time->backwardSeconds,
      time->exposedSeconds);
}
