#include "heddle/Plan/Plan.h"

#include "JsonText.h"
#include "PlanNames.h"

namespace heddle {

using detail::JsonText;
using detail::wordOf;

static JsonText textOf(const std::vector<std::string> &words) {
  JsonText list = JsonText::list();
  for (const std::string &word : words)
    list.add(word);
  return list;
}

static JsonText textOf(const PlanPlace &place) {
  JsonText list = JsonText::list();
  list.add(place.rank);
  list.add(place.chunk);
  return list;
}

static JsonText textOf(const std::vector<PlanRule> &rules) {
  JsonText list = JsonText::list();
  for (const PlanRule &rule : rules) {
    JsonText split = JsonText::map();
    for (const auto &[factor, axes] : rule.split)
      split.add(factor, textOf(axes));
    JsonText text = JsonText::map();
    text.add("match", rule.match);
    text.add("split", split);
    list.add(text);
  }
  return list;
}

static JsonText textOf(const PlanStages &stages) {
  JsonText layers = JsonText::list();
  for (const std::vector<PlanRange> &chunks : stages.layers) {
    JsonText row = JsonText::list();
    for (const PlanRange &range : chunks)
      row.add(range.text());
    layers.add(row);
  }
  JsonText schedule = JsonText::map();
  if (stages.schedule == PlanScheduleKind::Table)
    schedule.add("table", textOf(stages.table));
  else
    schedule.add("kind", wordOf(detail::scheduleWords, stages.schedule));
  JsonText text = JsonText::map();
  text.add("layers", layers);
  text.add("embedding", textOf(stages.embedding));
  text.add("head", textOf(stages.head));
  text.add("schedule", schedule);
  return text;
}

static JsonText textOf(const PlanTensor &tensor) {
  JsonText text = JsonText::map();
  text.add("parameters", textOf(tensor.parameters));
  text.add("values", textOf(tensor.values));
  text.add("saved", textOf(tensor.saved));
  return text;
}

static JsonText textOf(const PlanZero &zero) {
  JsonText text = JsonText::map();
  text.add("stage", zero.stage);
  text.add("shard_group", zero.shardGroup);
  text.add("prefetch", zero.prefetch);
  text.add("reduce", wordOf(detail::reduceWords, zero.reduce));
  text.add("gather", wordOf(detail::gatherWords, zero.gather));
  return text;
}

static JsonText textOf(const std::vector<PlanRecompute> &recompute) {
  JsonText list = JsonText::list();
  for (const PlanRecompute &entry : recompute) {
    JsonText text = JsonText::map();
    text.add("layers", entry.layers.text());
    switch (entry.kind) {
    case PlanRecomputeKind::Values:
      text.add("values", textOf(entry.values));
      break;
    case PlanRecomputeKind::Selective:
      text.add("selective", true);
      text.add("prune", entry.prune);
      break;
    case PlanRecomputeKind::Full:
      text.add("full", true);
      text.add("prune", entry.prune);
      break;
    case PlanRecomputeKind::Budget:
      text.add("budget_bytes", entry.budgetBytes);
      break;
    }
    list.add(text);
  }
  return list;
}

static JsonText textOf(const PlanPrecision &precision) {
  JsonText exceptions = JsonText::list();
  for (const PlanPrecisionException &exception : precision.exceptions) {
    JsonText text = JsonText::map();
    text.add("match", exception.match);
    text.add("compute", exception.compute);
    exceptions.add(text);
  }
  JsonText text = JsonText::map();
  text.add("recipe", precision.recipe);
  text.add("compute", precision.compute);
  text.add("master", precision.master);
  text.add("gradients", precision.gradients);
  text.add("reduce", precision.reduce);
  if (!precision.scaling.empty())
    text.add("scaling", precision.scaling);
  if (precision.blockLength > 0)
    text.add("block_length", precision.blockLength);
  if (precision.amaxHistory > 0) {
    text.add("amax_history", precision.amaxHistory);
    text.add("amax_algorithm", precision.amaxAlgorithm);
    text.add("amax_over_dp", true);
  }
  text.add("exceptions", exceptions);
  return text;
}

std::string writePlan(const Plan &plan) {
  JsonText mesh = JsonText::list();
  for (const auto &[axis, size] : plan.mesh) {
    JsonText pair = JsonText::list();
    pair.add(axis);
    pair.add(size);
    mesh.add(pair);
  }
  JsonText offload = JsonText::map();
  offload.add("saved", textOf(plan.offload.saved));
  offload.add("optimizer", plan.offload.optimizer);
  JsonText buckets = JsonText::map();
  buckets.add("gradient_bytes", plan.buckets.gradientBytes);
  buckets.add("order", wordOf(detail::orderWords, plan.buckets.order));

  JsonText text = JsonText::map();
  text.add("version", plan.version);
  text.add("mesh", mesh);
  text.add("micro_batch", plan.microBatch);
  text.add("micro_batches", plan.microBatches);
  text.add("stages", textOf(plan.stages));
  text.add("tensor", textOf(plan.tensor));
  text.add("context", wordOf(detail::contextWords, plan.context));
  text.add("attention", wordOf(detail::attentionWords, plan.attention));
  text.add("zero", textOf(plan.zero));
  text.add("recompute", textOf(plan.recompute));
  text.add("dropout_masks", wordOf(detail::maskWords, plan.dropoutMasks));
  text.add("save", wordOf(detail::saveWords, plan.save));
  text.add("offload", offload);
  text.add("precision", textOf(plan.precision));
  text.add("buckets", buckets);
  if (plan.overlapMemoryBytes) {
    JsonText overlap = JsonText::map();
    overlap.add("memory_bytes", *plan.overlapMemoryBytes);
    text.add("overlap", overlap);
  } else {
    text.add("overlap", "none");
  }
  return text.print();
}

} // namespace heddle
