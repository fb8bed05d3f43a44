#include "test/runtime/checkpoint/Layouts.h"

#include "heddle/Runtime/Random.h"
#include "runtime/checkpoint/Reshard.h"
#include "runtime/train/Extents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::test;

namespace {

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> fileShape;
  std::vector<int32_t> order;
  int cutDim, cutDimByCopy; ///< that tp cuts; -1: none
};

/// Embedding (tied), grouped queries, GPT-2's fused weight, columns, a norm.
const std::vector<Parameter> &parameters() {
  static const std::vector<Parameter> all = {
      {"embed.weight", {13, 6}, {13, 6}, {}, 0, 0},
      {"layers.{}.q.weight", {3, 2, 2, 6}, {12, 6}, {}, 0, 1},
      {"layers.{}.c_attn.weight", {3, 2, 2, 5}, {5, 12}, {1, 2, 3, 0}, 1, 1},
      {"layers.{}.down.weight", {6, 10}, {6, 10}, {}, 1, 1},
      {"layers.{}.norm.weight", {6}, {6}, {}, -1, -1},
      {"norm.weight", {7}, {7}, {}, -1, -1}};
  return all;
}

int64_t product(const std::vector<int64_t> &sizes) {
  int64_t n = 1;
  for (int64_t size : sizes)
    n *= size;
  return n;
}

runtime::Layout layoutOf(const LayoutSpec &spec, const Parameter &p,
                         bool isSharded) {
  runtime::Layout layout;
  layout.shape = layout.padded = layout.local = p.shape;
  layout.dims.resize(p.shape.size());
  const int cut = spec.byCopy ? p.cutDimByCopy : p.cutDim;
  if (cut >= 0 && spec.tp > 1) {
    const auto d = size_t(cut);
    layout.local[d] = (p.shape[d] + spec.tp - 1) / spec.tp;
    layout.padded[d] = layout.local[d] * spec.tp;
    layout.dims[d] = {"tp"};
  }
  if (isSharded && spec.dp > 1) {
    layout.runs = {"dp"};
    layout.row = (product(layout.local) + spec.dp - 1) / spec.dp * spec.dp;
  }
  return layout;
}

void addState(runtime::Tables &t, const LayoutSpec &spec, const Parameter &p,
              const std::string &kind) {
  runtime::State state;
  state.name = p.name;
  state.kind = kind;
  const bool isFamily = p.name.find("{}") != std::string::npos;
  state.layers = isFamily ? kLayers : 1;
  state.dtype =
      spec.bf16 && kind == "parameter" ? HEDDLE_RT_BF16 : HEDDLE_RT_F32;
  const bool isSharded =
      spec.zero == 3 || (spec.zero == 1 && kind != "parameter");
  state.layout = layoutOf(spec, p, isSharded);
  if (p.name == "embed.weight" && spec.pp > 1) // tied
    state.heldBy = {0, spec.pp - 1};
  if (p.name == "norm.weight" && spec.pp > 1)
    state.heldBy = spec.copies ? std::vector<int64_t>{0, spec.pp - 1}
                               : std::vector<int64_t>{spec.pp - 1};
  const int64_t stored = state.layout.runs.empty() ? product(state.layout.local)
                                                   : state.layout.row / spec.dp;
  state.layerStride = stored * (state.dtype == HEDDLE_RT_BF16 ? 2 : 4);
  state.file = {p.fileShape, p.order};
  state.offset = t.arenas[0].bytes;
  t.arenas[0].bytes += state.layerStride * state.layers;
  t.states.push_back(std::move(state));
}

int64_t widthOf(const runtime::State &state) {
  return state.dtype == HEDDLE_RT_BF16 ? 2 : 4;
}

} // namespace

runtime::Tables test::tablesOf(const LayoutSpec &spec) {
  runtime::Tables t;
  t.program = spec.name;
  t.mesh = {
      {"pp", spec.pp}, {"outer", spec.outer}, {"dp", spec.dp}, {"tp", spec.tp}};
  t.arenas = {{"main", 0}};
  if (spec.pp > 1) {
    t.stages.axis = "pp";
    t.stages.layers = spec.layers;
    for (int64_t s = 0; spec.layers.empty() && s < spec.pp; ++s) {
      std::vector<int64_t> held;
      for (int64_t layer = 0; layer < kLayers; ++layer) {
        const int64_t half = spec.copies ? spec.pp / 2 : spec.pp;
        const int64_t first = layer * half / kLayers;
        if (first == s || (spec.copies && spec.pp - 1 - first == s))
          held.push_back(layer);
      }
      t.stages.layers.push_back(held);
    }
  }
  t.outputs["loss"] = {{0, 0}, HEDDLE_RT_F32};
  t.arenas[0].bytes = 8;
  for (const char *kind :
       {"parameter", "master", "gradient", "adam_m", "adam_v"})
    for (const Parameter &p : parameters())
      if ((spec.bf16 || std::string(kind) != "master") &&
          !(spec.small && p.name.starts_with("layers")))
        addState(t, spec, p, kind);
  t.optimizer.type = "adamw";
  t.sequenceLength = 4;
  t.globalBatch = 8;
  t.vocabularySize = 13;
  return runtime::decodeTables(runtime::encodeTables(t));
}

const std::vector<LayoutSpec> &test::twelveLayouts() {
  static const std::vector<LayoutSpec> all = {
      {.name = "one"},
      {.name = "tp2", .tp = 2},
      {.name = "tp3", .tp = 3},
      {.name = "tp2-by-copy", .dp = 2, .tp = 2, .byCopy = true},
      {.name = "dp4-zero1", .dp = 4, .zero = 1},
      {.name = "dp3-zero3", .dp = 3, .zero = 3},
      {.name = "dp2-tp2-zero3", .dp = 2, .tp = 2, .zero = 3},
      {.name = "shard-group", .outer = 2, .dp = 2, .tp = 2, .zero = 1},
      {.name = "pp4", .pp = 4},
      {.name = "pp2-ragged", .tp = 2, .pp = 2, .layers = {{0, 1, 2}, {3}}},
      {.name = "pp2-chunks",
       .dp = 2,
       .pp = 2,
       .zero = 3,
       .layers = {{0, 2}, {1, 3}}},
      {.name = "two-copies", .dp = 2, .pp = 4, .zero = 1, .copies = true}};
  return all;
}

RankMemory test::memoryOf(const runtime::Tables &tables, int64_t rank,
                          uint64_t salt) {
  RankMemory memory;
  for (const runtime::State &state : tables.states) {
    const train::Extents extents(tables.mesh, rank, state.layout, state.file,
                                 tables.stages.axis);
    auto &instances = memory.emplace_back();
    for (int64_t i : tables.instancesAt(state, tables.stageOf(rank))) {
      const uint64_t stream =
          random::nameHash(state.kind + state.instanceName(i));
      auto &stored = instances.emplace_back(
          size_t(extents.storedElements() * widthOf(state)));
      for (int64_t r = 0; state.kind != "gradient" && r < extents.runCount();
           ++r)
        extents.visitStored(r, [&](int64_t element, int64_t place) {
          const uint32_t bits = random::wordAt(
              salt, stream, uint64_t(extents.runStart(r) + element));
          memcpy(stored.data() + place * widthOf(state), &bits,
                 size_t(widthOf(state)));
        });
    }
  }
  return memory;
}

std::vector<std::byte> test::copyOf(const RankPlan &plan,
                                    const runtime::Tables &tables,
                                    const RankMemory &memory) {
  std::vector<std::byte> copy(size_t(plan.copyBytes));
  for (const SavedItem &item : plan.items) {
    const auto state = size_t(item.state - tables.states.data());
    const auto &stored = memory[state][size_t(item.position)];
    if (int64_t(stored.size()) != item.bytes)
      throw std::logic_error("a plan of other bytes than a rank stores");
    memcpy(copy.data() + item.offset, stored.data(), stored.size());
  }
  return copy;
}

SaveName test::nameOf(const std::string &root, int64_t step) {
  return {root, fmt::format("{:032x}", step), step};
}

Manifest test::emptyManifest(const runtime::Tables &tables, int64_t step) {
  Manifest m;
  m.program = tables.program;
  m.mesh = tables.mesh;
  m.progress.globalBatch = tables.globalBatch;
  m.progress.sequenceLength = tables.sequenceLength;
  m.progress.nextSample = step * tables.globalBatch;
  m.progress.optimizer = tables.optimizer;
  m.progress.schedule = tables.schedule;
  return m;
}

Result<void> test::saveAll(FileSystem &files, const SaveName &name,
                           const runtime::Tables &tables, uint64_t salt,
                           const Order &order, int64_t keep) {
  if (auto done = beginSave(files, name, 0); !done)
    return done;
  std::vector<std::vector<int64_t>> reports(size_t(tables.ranks()));
  for (int64_t i = 0; i < tables.ranks(); ++i) {
    const int64_t rank = order.empty() ? i : order[size_t(i)];
    Result<RankPlan> plan = planRank(tables, rank);
    if (!plan)
      return plan.error();
    Result<std::vector<int64_t>> report =
        writeRank(files, name, *plan,
                  copyOf(*plan, tables, memoryOf(tables, rank, salt)));
    if (!report)
      return report.error();
    reports[size_t(rank)] = std::move(*report);
  }
  if (auto done = commitSave(files, name, tables,
                             emptyManifest(tables, name.step), reports);
      !done)
    return done;
  Result<std::vector<int64_t>> steps = listSteps(files, name.root);
  if (!steps)
    return steps.error();
  return removeOld(files, name.root, keep, *steps);
}

Result<RankMemory> test::loadRank(const Checkpoint &checkpoint,
                                  const runtime::Tables &tables, int64_t rank) {
  if (auto done = checkFits(checkpoint.manifest(), tables); !done)
    return done.error();
  Result<ReadPlan> plan = planReads(checkpoint.manifest(), tables, rank);
  if (!plan)
    return plan.error();
  RankMemory memory(tables.states.size());
  for (const Wanted &wanted : plan->wanted) {
    std::vector<std::byte> stored(
        size_t(wanted.share->stored * widthOf(*wanted.state)));
    if (wanted.source)
      if (auto done = readWanted(checkpoint, wanted, stored); !done)
        return done.error();
    memory[size_t(wanted.state - tables.states.data())].push_back(stored);
  }
  return memory;
}
