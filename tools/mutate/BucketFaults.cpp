//===- BucketFaults.cpp - Gradients reduced wrongly, after Overlap --------===//

#include "tools/mutate/Fault.h"

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;
using namespace heddle::transformer;

namespace {

bool isCollective(Operation *op) {
  return isa<dist::AllReduceOp, dist::ReduceScatterOp, dist::AllGatherOp>(op);
}

int64_t groupSize(Operation *op, ArrayAttr axes) {
  return op->getAttrOfType<dist::MeshAttr>("mesh").getGroupSize(axes);
}

/// Sums of one rank stay as they are, however often and wherever they are
/// made.
bool isAlone(dist::BucketOp bucket) {
  return llvm::all_of(bucket.getBody().front(), [](Operation &op) {
    return isa<LoadOp, StoreOp>(op) ||
           (isa<dist::AllReduceOp>(op) &&
            groupSize(&op, op.getAttrOfType<ArrayAttr>("axes")) == 1);
  });
}

/// The last op in front of `end` in its block that adds to what a bucket
/// loads; `end` may be null, for the whole block.
AccumulateOp lastContribution(dist::BucketOp bucket, Block &block,
                              Operation *end) {
  AccumulateOp last;
  for (auto load : bucket.getBody().getOps<LoadOp>())
    for (auto sum : block.getOps<AccumulateOp>())
      if (sum.getState() == load.getState() &&
          (!end || sum->isBeforeInBlock(end)) &&
          (!last || last->isBeforeInBlock(sum)))
        last = sum;
  return last;
}

class BucketFaults {
public:
  std::vector<Fault> find(ModuleOp module) {
    module.walk([&](Operation *op) {
      if (auto bucket = dyn_cast<dist::BucketOp>(op))
        findIn(bucket);
      if (auto loop = dyn_cast<LoopOp>(op))
        findIn(loop);
      if (auto row = dyn_cast<dist::ToRowOp>(op))
        findIn(row);
    });
    return std::move(faults);
  }

private:
  void add(const char *kind, Operation *op, std::function<void()> plant,
           std::string equivalent = "", const std::string &how = "") {
    faults.push_back(
        {kind, describe(op) + how, std::move(plant), std::move(equivalent)});
  }

  void findIn(dist::BucketOp bucket) {
    std::string alone = isAlone(bucket) ? "all its groups have one rank" : "";
    for (Operation &op : bucket.getBody().front())
      if (isa<StoreOp, AccumulateOp>(op))
        add(
            "leave a gradient out of a bucket", bucket, [&op] { op.erase(); },
            alone,
            " without " + op.getAttrOfType<SymbolRefAttr>("state")
                              .getLeafReference()
                              .str());
    if (AccumulateOp last =
            lastContribution(bucket, *bucket->getBlock(), bucket))
      add(
          "reduce before the last contribution", bucket,
          [bucket, last] { bucket->moveBefore(last); }, alone);
    findEarlier(bucket, alone);
    findGroups(bucket);
  }

  /// In the micro-batches before the last one too.
  void findEarlier(dist::BucketOp bucket, const std::string &alone) {
    auto within = bucket->getParentOfType<LoopOp>();
    while (within && within.getOver() != "micro_batch")
      within = within->getParentOfType<LoopOp>();
    auto before =
        within ? dyn_cast_or_null<LoopOp>(within->getPrevNode()) : LoopOp();
    if (!before || before.getOver() != "micro_batch")
      return;
    AccumulateOp here, there;
    auto find = [&](LoopOp loop) {
      AccumulateOp found;
      loop.walk([&](Block *block) {
        if (AccumulateOp last = lastContribution(bucket, *block, nullptr))
          found = last;
      });
      return found;
    };
    here = find(within), there = find(before);
    if (!here || !there)
      return;
    add(
        "reduce in every micro-batch", bucket,
        [=]() mutable {
          OpBuilder builder(there->getContext());
          builder.setInsertionPointAfter(there);
          IRMapping mapping;
          if (here.getIndex())
            mapping.map(here.getIndex(), there.getIndex());
          builder.clone(*bucket, mapping);
        },
        alone);
  }

  /// All that a bucket does over some axes, over another one of the mesh.
  void findGroups(dist::BucketOp bucket) {
    SmallVector<Attribute> lists;
    dist::MeshAttr mesh;
    for (Operation &op : bucket.getBody().front())
      if (isCollective(&op)) {
        mesh = op.getAttrOfType<dist::MeshAttr>("mesh");
        if (!llvm::is_contained(lists, op.getAttr("axes")))
          lists.push_back(op.getAttr("axes"));
      }
    for (Attribute list : lists)
      for (Attribute axis : mesh.getNames()) {
        auto axes = cast<ArrayAttr>(list),
             other = ArrayAttr::get(bucket.getContext(), {axis});
        if (axes == other)
          continue;
        bool same =
            mesh.getGroupSize(axes) == 1 && mesh.getGroupSize(other) == 1;
        std::string how;
        llvm::raw_string_ostream(how) << " from " << axes << " to " << other;
        add(
            "send a bucket to another group", bucket,
            [bucket, axes, other]() mutable {
              for (Operation &op : bucket.getBody().front())
                if (isCollective(&op) && op.getAttr("axes") == axes)
                  op.setAttr("axes", other);
            },
            same ? "both groups have one rank" : "", how);
      }
  }

  /// The last micro-batch is a loop of its own behind the others.
  void findIn(LoopOp loop) {
    auto before = dyn_cast_or_null<LoopOp>(loop->getPrevNode());
    if (!loop.getFrom() || !before)
      return;
    add("repeat a micro-batch in place of the last", loop, [loop]() mutable {
      if (loop.getFirst() > 1)
        loop.setFrom(loop.getFirst() - 1);
      else
        loop.removeFromAttr();
    });
    add("run the last micro-batch twice", before,
        [before]() mutable { before.setCount(before.getCount() + 1); });
  }

  void findIn(dist::ToRowOp row) {
    auto from = cast<RankedTensorType>(row.getInput().getType()),
         to = cast<RankedTensorType>(row.getType());
    if (from.getNumElements() != to.getNumElements())
      add("drop a row's padding", row, [row, from, to]() mutable {
        row.getResult().setType(RankedTensorType::get({from.getNumElements()},
                                                      to.getElementType()));
      });
  }

  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findBucketFaults(ModuleOp module) {
  return BucketFaults().find(module);
}
