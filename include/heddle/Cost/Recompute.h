//===- Recompute.h - What backward computes again ---------------*- C++ -*-===//
//
// Forward of a block, op by op, with the names that plans know, so that what is
// saved of it and what is done once more can be counted.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_COST_RECOMPUTE_H
#define HEDDLE_COST_RECOMPUTE_H

#include "heddle/Plan/Plan.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Axes of the IR's mesh, outermost first: {"tp.kv", "tp.copy"}.
using AxisList = std::vector<std::string>;

/// A send is one to one, and its receive is not counted.
enum class CollectiveKind {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Send,
};

/// A value that a block's forward keeps for its backward.
struct SavedValue {
  std::string name;         ///< as in the IR: "x1"
  std::string reason;       ///< what in backward reads it
  std::int64_t bytes = 0;   ///< of one layer
  std::int64_t entries = 0; ///< layers, or one more for what flows in and out
  bool isStatistic = false; ///< a number in fp32 of each token or head
};

/// A value of a block. What a collective makes of a value has its name, and a
/// key of its own.
struct BlockValue {
  std::string key, name;
  std::int64_t bytes = 0;
};

struct BlockOp {
  /// What a collective moves.
  struct Move {
    CollectiveKind kind = CollectiveKind::AllReduce;
    std::string cause;
    AxisList axes;
    std::int64_t elements = 0; ///< of the whole tensor
  };

  /// An operand of a product, as it is scaled where the plan has codes of it.
  struct Operand {
    std::string key;         ///< of a value, or of a parameter's part
    std::int64_t rows = 0;   ///< of the rank's part, as it is multiplied
    std::int64_t summed = 0; ///< numbers of a row
    AxisList axes;           ///< over which its parts lie
    bool isTurned = false;   ///< it is not summed over its last dimensions
    bool isParameter = false;
    std::string of = {}; ///< the parameter of the product, by argument
  };

  std::vector<BlockValue> results;
  std::vector<Operand> operands;  ///< both, of a product that may be scaled
  std::vector<std::string> reads; ///< keys; "x", "delta" come in
  std::vector<std::string> parameters; ///< by argument
  double products = 0, attention = 0;  ///< operations
  std::optional<Move> moves;
  /// Whether the product makes attention's scores or reads its probabilities:
  /// where attention is not one kernel.
  bool makesScores = false, readsProbabilities = false;
  /// Of a parameter's part of a sum, while the op runs.
  std::int64_t temporary = 0;
  /// Whether one kernel may hold it together with others that read its results.
  bool fuses = false;
  /// Whether it is launched behind the op in front, as a part of that.
  bool goesWithPrevious = false;
  /// A sum that it adds itself to; it makes no value then.
  std::string addsTo;
  /// What reports call it; "": as its first result.
  std::string moment;

  /// Whether repeating it takes operations or traffic.
  bool isCostly() const { return moves || products + attention > 0; }
};

/// Layers of one choice of what is computed again, and of one set of formats.
struct LayersUnder {
  PlanRecompute choice; ///< of no layers in particular
  /// Parameters, by argument, whose products are of no codes.
  std::vector<std::string> plain;
  std::int64_t layers = 0; ///< that the rank's place holds
  std::vector<SavedValue> saved;
  std::vector<BlockOp> forward; ///< of all choices alike
  /// Ops that backward repeats, in forward's order. Where W slots run apart
  /// from B, those that cost something are repeated once as well.
  std::vector<BlockOp> again;
  /// Backward with these ops in it, each in front of the first op that reads
  /// it: one function, or where W slots run apart from B that of input
  /// gradients and that of weight gradients.
  std::vector<std::vector<BlockOp>> backward;

  bool saves(std::string_view name) const;
};

} // namespace heddle

#endif // HEDDLE_COST_RECOMPUTE_H
