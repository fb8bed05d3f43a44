//===- CollectiveFaults.cpp - Wrong collectives, after Collectives --------===//

#include "tools/mutate/Fault.h"

#include "dialects/Stage/Stage.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;

namespace {

constexpr const char *kShift = "a softmax's maximum only shifts exponents";
constexpr const char *kBegins =
    "a mask depends on where a part begins, and what is padding is zero";
constexpr const char *kNoPadding = "no rank stores padding";
constexpr const char *kZero = "what is shared is zero";

bool isCollective(Operation *op) {
  return isa<dist::AllReduceOp, dist::ReduceScatterOp, dist::AllGatherOp,
             dist::AllToAllOp, dist::PermuteOp, dist::SliceOp,
             dist::MakePartialOp>(op);
}

bool isMaximum(Operation *op) {
  auto reduce = dyn_cast<dist::AllReduceOp>(op);
  return reduce && reduce.getReduction() == dist::Reduction::Max;
}

/// A softmax's maximum only shifts exponents: any value that all ranks share
/// gives the same loss and gradient, as long as nothing overflows.
bool onlyShifts(Value value) {
  return llvm::all_of(value.getUses(), [](OpOperand &use) {
    unsigned number = isa<transformer::TokenLossOp>(use.getOwner()) ? 0 : 1;
    return use.getOperandNumber() == number &&
           isa<transformer::RowSumExpOp, transformer::TokenLossOp,
               transformer::LossGradOp>(use.getOwner());
  });
}

/// Whether a value goes nowhere, or only to functions that do not look at it.
bool isUnread(Value value) {
  return llvm::all_of(value.getUses(), [](OpOperand &use) {
    if (isa<dist::FromRowOp>(use.getOwner()))
      return isUnread(use.getOwner()->getResult(0));
    auto call = dyn_cast<func::CallOp>(use.getOwner());
    auto callee = call ? SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
                             call, call.getCalleeAttr())
                       : func::FuncOp();
    return callee && isUnread(callee.getArgument(use.getOperandNumber()));
  });
}

/// Sums, shares and copies of zero are zero.
bool isZero(Value value) {
  return value.getDefiningOp<transformer::ZerosOp>() != nullptr;
}

class CollectiveFaults {
public:
  std::vector<Fault> find(ModuleOp module) {
    module.walk([&](Operation *op) {
      if (isCollective(op))
        findIn(op);
      if (auto shards = op->getAttrOfType<DictionaryAttr>(dist::kShardsName))
        for (NamedAttribute entry : shards)
          findShard(op, shards, entry);
    });
    return std::move(faults);
  }

private:
  void add(const char *kind, Operation *op, std::string equivalent,
           std::function<void()> plant, const std::string &how = "") {
    faults.push_back(
        {kind, describe(op) + how, std::move(plant), std::move(equivalent)});
  }

  void findIn(Operation *op) {
    auto mesh = op->getAttrOfType<dist::MeshAttr>("mesh");
    auto axes = op->getAttrOfType<ArrayAttr>("axes");
    bool alone = mesh.getGroupSize(axes) == 1;
    const char *one = isZero(op->getOperand(0)) ? kZero
                      : alone                   ? "the group has one rank"
                                                : "";
    if (op->getOperand(0).getType() == op->getResult(0).getType()) {
      add(isa<dist::MakePartialOp>(op) ? "miss a make_partial"
                                       : "delete a collective",
          op, one, [op] {
            op->getResult(0).replaceAllUsesWith(op->getOperand(0));
            op->erase();
          });
      add("duplicate a collective", op,
          isMaximum(op) ? "the maximum of equal values is that value"
          : isa<dist::MakePartialOp>(op)
              ? "the first rank keeps a value, others zero, as often as it is "
                "done"
              : one,
          [op] { duplicate(op); });
    }
    if (auto reduce = dyn_cast<dist::AllReduceOp>(op))
      exchangeReduction(reduce, one);
    if (auto reduce = dyn_cast<dist::ReduceScatterOp>(op))
      exchangeReduction(reduce, one);
    if (isa<FloatType>(getElementTypeOrSelf(op->getResult(0))))
      findScale(op, mesh, axes);
    findAxes(op, mesh, axes);
  }

  template <class Op>
  void exchangeReduction(Op reduce, const char *one) {
    bool shifts = isMaximum(reduce) && onlyShifts(reduce.getResult());
    bool isLoss = reduce.getInput().template getDefiningOp<stage::RunOp>();
    add("exchange sum and maximum", reduce,
        shifts   ? kShift
        : isLoss ? "a loss is above zero where the head is, and zero elsewhere"
                 : one,
        [reduce]() mutable {
          bool sums = reduce.getReduction() == dist::Reduction::Sum;
          reduce.setReduction(sums ? dist::Reduction::Max
                                   : dist::Reduction::Sum);
        });
  }

  void findScale(Operation *op, dist::MeshAttr mesh, ArrayAttr axes) {
    int64_t size = std::max<int64_t>(mesh.getGroupSize(axes), 2);
    Value result = op->getResult(0);
    add(
        "scale by an axis size", op,
        isZero(op->getOperand(0)) ? kZero
        : isUnread(result)        ? "nothing reads the value"
        : onlyShifts(result)      ? "a softmax's maximum only shifts exponents"
                                  : "",
        [op, size] {
          OpBuilder builder(op->getContext());
          builder.setInsertionPointAfter(op);
          Value value = op->getResult(0), sum = value;
          llvm::SmallPtrSet<Operation *, 8> made;
          for (int64_t i = 1; i < size; ++i) {
            sum = transformer::AddOp::create(builder, op->getLoc(), sum, value);
            made.insert(sum.getDefiningOp());
          }
          value.replaceAllUsesExcept(sum, made);
        },
        " x " + std::to_string(size));
  }

  void findAxes(Operation *op, dist::MeshAttr mesh, ArrayAttr axes) {
    Builder builder(op->getContext());
    for (StringRef axis : mesh.getNames().getAsValueRange<StringAttr>()) {
      auto name = builder.getStringAttr(axis);
      if (llvm::is_contained(axes, name))
        continue;
      SmallVector<Attribute> other(axes.begin(), axes.end());
      other.back() = name;
      auto others = builder.getArrayAttr(other);
      bool same =
          mesh.getGroupSize(axes) == 1 && mesh.getGroupSize(others) == 1;
      add(
          "retarget a collective", op,
          isZero(op->getOperand(0)) ? kZero
          : same                    ? "both groups have one rank"
                                    : "",
          [op, others] { op->setAttr("axes", others); }, " to " + axis.str());
    }
    if (axes.size() < 2)
      return;
    SmallVector<Attribute> swapped(llvm::reverse(axes));
    auto others = builder.getArrayAttr(swapped);
    int64_t larger =
        llvm::count_if(axes.getAsValueRange<StringAttr>(),
                       [&](StringRef axis) { return mesh.getSize(axis) > 1; });
    add("swap axes of a collective", op,
        larger < 2 ? "all but one of the axes have size 1"
        : isa<dist::AllReduceOp>(op)
            ? "a sum over a group does not depend on its order"
        : isa<dist::MakePartialOp>(op)
            ? "the first rank is the same in either order"
            : "",
        [op, others] { op->setAttr("axes", others); });
  }

  static void duplicate(Operation *op) {
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    Operation *again = builder.clone(*op);
    op->getResult(0).replaceAllUsesWith(again->getResult(0));
    again->setOperand(0, op->getResult(0));
  }

  void findShard(Operation *op, DictionaryAttr shards, NamedAttribute entry) {
    auto shard = cast<dist::ShardAttr>(entry.getValue());
    dist::MeshAttr mesh = shard.getMesh();
    int64_t ranks = mesh.getGroupSize(shard.getAxes());
    auto set = [op, shards, entry](dist::ShardAttr to) {
      return [op, shards, entry, to] {
        NamedAttrList changed(shards);
        if (to)
          changed.set(entry.getName(), to);
        else
          changed.erase(entry.getName());
        op->setAttr(dist::kShardsName, changed.getDictionary(op->getContext()));
      };
    };
    auto make = [&](ArrayAttr axes, int64_t extent) {
      return dist::ShardAttr::get(op->getContext(), mesh, axes, extent);
    };
    bool shifts = isa<transformer::RowMaxOp>(op);
    bool begins =
        isa<transformer::DropoutOp>(op) ||
        (isa<transformer::AttentionOp, transformer::AttentionGradOp>(op) &&
         entry.getName() == "g");
    add("cut a shard's extent", op,
        shifts   ? kShift
        : begins ? kBegins
                 : "",
        set(make(shard.getAxes(), shard.getExtent() - 1)));
    bool looksUp = isa<transformer::EmbeddingOp, transformer::EmbeddingGradOp,
                       transformer::PickOp>(op);
    add("exceed a shard's extent", op,
        shard.getExtent() % ranks == 0 ? kNoPadding
        : begins                       ? kBegins
        : looksUp                      ? "no token lies behind the vocabulary"
        : shifts                       ? kShift
                                       : "",
        set(make(shard.getAxes(), shard.getExtent() + 1)));
    // What only leaves padding out, of a group that is not larger.
    bool leavesNone =
        isa<transformer::RowSumExpOp>(op) && shard.getExtent() % ranks == 0;
    for (Attribute axis : mesh.getNames()) {
      auto other = ArrayAttr::get(op->getContext(), {axis});
      if (other == shard.getAxes())
        continue;
      add("retarget a shard", op,
          shifts ? kShift
          : ranks == 1 && mesh.getGroupSize(other) == 1
              ? "both groups have one rank"
          : leavesNone && mesh.getGroupSize(other) <= ranks ? kNoPadding
                                                            : "",
          set(make(other, shard.getExtent())),
          " to " + cast<StringAttr>(axis).str());
    }
    add("drop a shard", op,
        shifts       ? kShift
        : ranks == 1 ? "the group has one rank"
        : leavesNone ? kNoPadding
                     : "",
        set({}));
  }

  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findCollectiveFaults(ModuleOp module) {
  return CollectiveFaults().find(module);
}
