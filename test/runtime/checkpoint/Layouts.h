//===- Layouts.h - A small model under many layouts, in memory ------------===//

#ifndef HEDDLE_TEST_RUNTIME_CHECKPOINT_LAYOUTS_H
#define HEDDLE_TEST_RUNTIME_CHECKPOINT_LAYOUTS_H

#include "heddle/Runtime/Tables.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/Save.h"

#include <cstddef>
#include <string>
#include <vector>

namespace heddle::test {

/// How the model is laid out. Sizes do not divide: blocks are padded.
struct LayoutSpec {
  std::string name;
  int64_t outer = 1, dp = 1, tp = 1, pp = 1;
  int64_t zero = 0; ///< 1: masters and moments are runs over dp; 3: parameters
  bool bf16 = false;
  bool copies = false; ///< two copies of the layers, from both ends of pp
  bool byCopy = false; ///< tp cuts heads per group, not groups
  bool small = false;  ///< embedding and last norm alone
  std::vector<std::vector<int64_t>> layers = {}; ///< by stage; else in order
};

inline constexpr int64_t kLayers = 4;

runtime::Tables tablesOf(const LayoutSpec &spec);
/// Twelve: ranks 1 to 8, every axis, ragged, ZeRO 0, 1 and 3.
const std::vector<LayoutSpec> &twelveLayouts();

/// What a rank stores: by state of the tables, then by position on its stage.
using RankMemory = std::vector<std::vector<std::vector<std::byte>>>;
/// Each element's bits are a function of (salt, kind, name, index in the file
/// form); padding is zero. By the train main's Extents, not by pieces.
RankMemory memoryOf(const runtime::Tables &tables, int64_t rank, uint64_t salt);

/// What training hands over for saving.
std::vector<std::byte> copyOf(const checkpoint::RankPlan &plan,
                              const runtime::Tables &tables,
                              const RankMemory &memory);

/// Which rank writes when. Empty: in order.
using Order = std::vector<int64_t>;
checkpoint::SaveName nameOf(const std::string &root, int64_t step);
checkpoint::Manifest emptyManifest(const runtime::Tables &tables, int64_t step);
/// A whole save, all ranks in turn, then all but the newest `keep` removed.
Result<void> saveAll(checkpoint::FileSystem &files,
                     const checkpoint::SaveName &name,
                     const runtime::Tables &tables, uint64_t salt,
                     const Order &order = {}, int64_t keep = 9);
/// What a rank reads of a checkpoint.
Result<RankMemory> loadRank(const checkpoint::Checkpoint &checkpoint,
                            const runtime::Tables &tables, int64_t rank);

} // namespace heddle::test

#endif
