#include "tools/heddle/Layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

using namespace heddle;
using json = nlohmann::ordered_json;

namespace {
/// The mesh, row-major: the last axis is the fastest.
struct Mesh {
  const runtime::Tables &tables;

  int64_t coordinate(int64_t rank, const std::string &axis) const {
    for (auto it = tables.mesh.rbegin(); it != tables.mesh.rend(); ++it) {
      if (it->first == axis)
        return rank % it->second;
      rank /= it->second;
    }
    return 0;
  }
  int64_t size(const std::string &axis) const {
    for (const auto &[name, size] : tables.mesh)
      if (name == axis)
        return size;
    return 1;
  }
};
} // namespace

/// True elements of one rank per dimension, [first, last).
static json extentsOf(const Mesh &mesh, const runtime::Layout &layout,
                      int64_t rank) {
  json extents = json::array();
  for (size_t dim = 0; dim < layout.shape.size(); ++dim) {
    int64_t block = 0;
    for (const std::string &axis : layout.dims[dim])
      block = block * mesh.size(axis) + mesh.coordinate(rank, axis);
    int64_t first = std::min(block * layout.local[dim], layout.shape[dim]);
    int64_t last = std::min(first + layout.local[dim], layout.shape[dim]);
    extents.push_back({first, last});
  }
  return extents;
}

/// Which elements of its block, as one row, a rank stores: [first, last),
/// without what fills the row up; null where it stores the block.
static json runOf(const Mesh &mesh, const runtime::Layout &layout,
                  int64_t rank) {
  if (layout.runs.empty())
    return nullptr;
  int64_t parts = 1, part = 0, block = 1;
  for (const std::string &axis : layout.runs) {
    parts *= mesh.size(axis);
    part = part * mesh.size(axis) + mesh.coordinate(rank, axis);
  }
  for (int64_t size : layout.local)
    block *= size;
  const int64_t length = layout.row / parts;
  return {std::min(part * length, block), std::min((part + 1) * length, block)};
}

/// Axes along which ranks of a stage store the same.
static std::vector<std::string> replicaAxes(const Mesh &mesh,
                                            const runtime::Layout &layout) {
  std::vector<std::string> axes;
  for (const auto &[name, size] : mesh.tables.mesh) {
    const auto names = [&](const std::vector<std::string> &list) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    bool cuts = names(layout.runs) ||
                std::any_of(layout.dims.begin(), layout.dims.end(), names);
    if (!cuts && size > 1 && name != mesh.tables.stages.axis)
      axes.push_back(name);
  }
  return axes;
}

/// Of ranks whose stage holds an instance: each, or the first of each stage.
static json ranksOf(const Mesh &mesh, const runtime::State &state,
                    const std::vector<bool> &holds) {
  const runtime::Layout &layout = state.layout;
  const bool all = mesh.tables.ranks() <= tool::kListedRanks;
  json ranks = json::array();
  std::vector<bool> listed(holds.size());
  for (int64_t rank = 0; rank < mesh.tables.ranks(); ++rank) {
    const auto stage = size_t(mesh.tables.stageOf(rank));
    if (!holds[stage] || (!all && listed[stage]))
      continue;
    listed[stage] = true;
    json entry = {{"rank", rank},
                  {"extents", extentsOf(mesh, layout, rank)},
                  {"run", runOf(mesh, layout, rank)}};
    if (!all) {
      entry["cut"] = {{"dimensions", layout.dims}, {"row", layout.runs}};
      entry["replicated_over"] = replicaAxes(mesh, layout);
    }
    ranks.push_back(std::move(entry));
  }
  return ranks;
}

/// By stage: whether it holds instance `i`.
static std::vector<bool> holdersOf(const runtime::Tables &tables,
                                   const runtime::State &state, int64_t i) {
  std::vector<bool> holds;
  for (int64_t stage = 0; stage < tables.numStages(); ++stage) {
    const std::vector<int64_t> held = tables.instancesAt(state, stage);
    holds.push_back(std::find(held.begin(), held.end(), i) != held.end());
  }
  return holds;
}

std::string tool::layoutText(const runtime::Tables &tables) {
  static const std::set<std::string> kinds = {"parameter", "master", "adam_m",
                                              "adam_v", "scaling"};
  Mesh mesh{tables};
  std::string text = fmt::format("{{\"version\": 1, \"mesh\": {}, "
                                 "\"tensors\": [",
                                 json(tables.mesh).dump());
  const char *separator = "\n";
  for (const runtime::State &state : tables.states) {
    if (!kinds.count(state.kind))
      continue;
    json rest = {{"kind", state.kind},
                 {"shape", state.layout.shape},
                 {"file_shape", state.file.shape},
                 {"dtype", state.dtype == HEDDLE_RT_F32    ? "fp32"
                           : state.dtype == HEDDLE_RT_BF16 ? "bf16"
                           : state.dtype == HEDDLE_RT_F16  ? "fp16"
                                                           : "other"}};
    std::map<std::vector<bool>, std::string> tails;
    for (int64_t i = 0; i < state.layers; ++i) {
      std::vector<bool> holds = holdersOf(tables, state, i);
      std::string &tail = tails[holds];
      if (tail.empty()) {
        rest["ranks"] = ranksOf(mesh, state, holds);
        tail = rest.dump().substr(1);
      }
      text += fmt::format("{}{{\"name\": {}, {}", separator,
                          json(state.instanceName(i)).dump(), tail);
      separator = ",\n";
    }
  }
  return text + "\n]}\n";
}
