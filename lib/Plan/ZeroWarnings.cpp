#include "ZeroWarnings.h"

#include "heddle/Plan/PlanLayout.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle {

namespace {

class ZeroWarnings {
public:
  ZeroWarnings(const Plan &plan, const ModelConfig &model)
      : plan(plan), model(model), families(parameters(model)) {
    for (const auto &[axis, size] : meshOfPlan(plan, model).axes)
      for (const std::string &shard : zeroAxes(plan))
        shards *= axis == shard ? size : 1;
  }

  std::vector<PlanWarning> find() {
    if (shards > 1)
      warnAboutCopies();
    warnAboutPrefetch();
    return std::move(warnings);
  }

private:
  template <typename... Arguments>
  void warn(fmt::format_string<Arguments...> text, Arguments &&...arguments) {
    warnings.push_back(
        {fmt::format(text, std::forward<Arguments>(arguments)...)});
  }

  /// Bytes of whole copies, as a rank computes with them, in fp32.
  template <typename Keep>
  std::int64_t rowBytes(Keep keep) const {
    std::int64_t bytes = 0;
    for (const ParameterFamily &family : families)
      if (keep(family))
        bytes += 4 * rowElements(partElements(plan, model, family), shards);
    return bytes;
  }
  /// Of the ranks of pp those of the one that has most.
  std::int64_t allBytes() const {
    std::int64_t most = 0;
    for (std::size_t rank = 0; rank < plan.stages.layers.size(); ++rank) {
      std::int64_t bytes = 0;
      for (const ParameterFamily &family : families)
        bytes +=
            instances(family, rank) *
            rowBytes([&](const ParameterFamily &f) { return &f == &family; });
      most = std::max(most, bytes);
    }
    return most;
  }
  /// How often a rank of pp has a parameter.
  std::int64_t instances(const ParameterFamily &family,
                         std::size_t rank) const {
    const bool begins = std::size_t(plan.stages.embedding.rank) == rank,
               ends = std::size_t(plan.stages.head.rank) == rank;
    if (family.segment == Segment::Head)
      return ends;
    // The head reads a tied table too.
    if (family.segment == Segment::Embedding)
      return begins ||
             (ends && model.tiedEmbeddings && family.argument == "embed");
    std::int64_t layers = 0;
    for (const PlanRange &range : plan.stages.layers[rank])
      layers += layersIn(range);
    return layers;
  }
  static std::int64_t layersIn(const PlanRange &range) {
    return range.empty() ? 0 : range.last - range.first + 1;
  }

  void warnAboutCopies() {
    const std::int64_t whole = allBytes();
    const PlanZero &zero = plan.zero;
    if (zero.stage == 3 && zero.gather == PlanGather::OncePerStep)
      warn("zero.stage 3 with zero.gather once_per_step keeps a whole copy of "
           "the parameters beside its shard: {} bytes per rank beside {}; "
           "every_pass keeps one block's",
           whole, whole / shards);
    if (zero.stage >= 2 && zero.reduce == PlanReduce::Last)
      warn("zero.stage {} with zero.reduce last holds whole sums of gradients, "
           "as stage 1 does: {} bytes per rank, with every_micro_batch {}",
           zero.stage, whole, whole / shards);
  }

  void warnAboutPrefetch() {
    const std::int64_t wanted = plan.zero.prefetch;
    if (wanted == 0)
      return;
    if (plan.zero.stage < 3 || shards == 1 ||
        plan.zero.gather != PlanGather::EveryPass)
      return warn("zero.prefetch {} gathers nothing ahead: blocks are gathered "
                  "one by one only with zero.stage 3 over several ranks and "
                  "zero.gather every_pass, found stage {} over {} and {}",
                  wanted, plan.zero.stage, shards, gatherWord());
    // More blocks than there are behind the first are never ahead of it.
    std::int64_t longest = 0;
    for (const std::vector<PlanRange> &chunks : plan.stages.layers)
      for (const PlanRange &range : chunks)
        longest = std::max(longest, layersIn(range));
    if (longest < 2)
      return warn("zero.prefetch {} gathers nothing ahead: no stage has more "
                  "than {} layer",
                  wanted, longest);
    const std::int64_t blocks = std::min(wanted, longest - 1),
                       block = rowBytes([](const ParameterFamily &family) {
                         return family.segment == Segment::Block;
                       }),
                       memory = plan.overlapMemoryBytes.value_or(0);
    if (!plan.overlapMemoryBytes)
      warn("zero.prefetch {} gathers nothing ahead without overlap: give "
           "overlap.memory_bytes {} ({} of {} bytes)",
           wanted, blocks * block, blocksText(blocks), block);
    else if (memory / block < blocks)
      warn("overlap.memory_bytes {} holds {} of the {} that zero.prefetch {} "
           "gathers ahead: it needs {} ({} bytes each)",
           memory, memory / block, blocksText(blocks), wanted, blocks * block,
           block);
  }

  static std::string blocksText(std::int64_t blocks) {
    return fmt::format("{} block{}", blocks, blocks == 1 ? "" : "s");
  }

  const char *gatherWord() const {
    return plan.zero.gather == PlanGather::EveryPass ? "every_pass"
           : plan.zero.gather == PlanGather::EveryMicroBatch
               ? "every_micro_batch"
               : "once_per_step";
  }

  const Plan &plan;
  const ModelConfig &model;
  const std::vector<ParameterFamily> families;
  std::int64_t shards = 1;
  std::vector<PlanWarning> warnings;
};

} // namespace

std::vector<PlanWarning> detail::zeroWarnings(const Plan &plan,
                                              const ModelConfig &model) {
  return ZeroWarnings(plan, model).find();
}

} // namespace heddle
