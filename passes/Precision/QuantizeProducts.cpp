//===- QuantizeProducts.cpp - operands of products become codes -----------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Transformer/Scaling.h"
#include "passes/Precision/Formats.h"
#include "passes/Precision/Passes.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::precision;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_QUANTIZEPRODUCTSPASS
#include "passes/Precision/Passes.h.inc"
} // namespace heddle

void precision::noteScaleAxes(func::FuncOp function) {
  auto module = function->getParentOfType<ModuleOp>();
  auto storage = module->getAttrOfType<DictionaryAttr>(dist::kStorageName);
  auto data = storage ? storage.getAs<ArrayAttr>("data") : ArrayAttr();
  function.walk([&](ContractOp op) {
    if (!op->hasAttr(kScaledName))
      return;
    SmallVector<Attribute> lists;
    for (Value operand : {op.getLhs(), op.getRhs()}) {
      dist::LayoutAttr layout = dist::getLayout(operand);
      llvm::DenseSet<Attribute> cuts;
      for (int64_t dim = 0; layout && dim < layout.getRank(); ++dim)
        for (Attribute axis : layout.getAxes(dim))
          if (!data || !llvm::is_contained(data, axis))
            cuts.insert(axis);
      SmallVector<Attribute> axes;
      if (layout)
        llvm::copy_if(layout.getMesh().getNames(), std::back_inserter(axes),
                      [&](Attribute axis) { return cuts.contains(axis); });
      lists.push_back(ArrayAttr::get(op.getContext(), axes));
    }
    op->setAttr(kScaleAxesName, ArrayAttr::get(op.getContext(), lists));
  });
}

namespace {

/// Of what a region takes in, the name outside.
static StringRef nameOf(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  auto region = argument
                    ? dyn_cast<RecomputeOp>(argument.getOwner()->getParentOp())
                    : RecomputeOp();
  return getName(region ? region.getInputs()[argument.getArgNumber()] : value);
}

/// Makes codes of the operands of one block's products.
class Quantizer {
public:
  Quantizer(Block &block, dist::MeshAttr mesh)
      : block(block), mesh(mesh), builder(block.getParentOp()->getContext()) {
    block.walk([&](Operation *op) {
      for (Value result : op->getResults())
        names.insert(getName(result));
    });
  }

  LogicalResult run() {
    for (auto op : llvm::to_vector(block.getOps<ContractOp>()))
      if (failed(quantize(op)))
        return failure();
    return success();
  }

private:
  struct Codes {
    Value codes, scale;
    std::string letters; ///< of the codes
  };

  LogicalResult quantize(ContractOp op) {
    FailureOr<std::optional<Scaling>> scaling = Scaling::of(op);
    if (failed(scaling))
      return failure();
    if (!*scaling)
      return success();
    auto axes = op->getAttrOfType<ArrayAttr>(kScaleAxesName);
    if (!axes || axes.size() != 2)
      return op.emitOpError()
             << "is to be scaled, but has no " << kScaleAxesName;
    auto [left, result] = op.getSpec().split("->");
    auto [first, second] = left.split(",");
    builder.setInsertionPoint(op);
    Codes operands[2];
    const Value values[] = {op.getLhs(), op.getRhs()};
    const StringRef lists[] = {first, second};
    for (unsigned i : {0, 1}) {
      FailureOr<int64_t> rotate =
          rotationOf(op, lists[i], lists[1 - i], result);
      if (failed(rotate))
        return failure();
      operands[i] =
          codesOf(op, values[i], lists[i], *rotate, (*scaling)->formats[i],
                  (*scaling)->powerOfTwo, cast<ArrayAttr>(axes[i]));
    }
    auto product =
        ContractOp::create(builder, op.getLoc(), op.getType(),
                           operands[0].letters + ", " + operands[1].letters +
                               " -> " + result.trim().str(),
                           operands[0].codes, operands[1].codes,
                           ValueRange({operands[0].scale, operands[1].scale}));
    if (StringRef name = getName(op.getResult()); !name.empty())
      setNames(product, {name.str()});
    op.replaceAllUsesWith(product.getResult());
    op.erase();
    return success();
  }

  /// How to rotate an operand so that what is summed over comes last: products
  /// of 8 bits have no other form on GPUs.
  FailureOr<int64_t> rotationOf(ContractOp op, StringRef list, StringRef other,
                                StringRef result) {
    SmallVector<StringRef> letters, others, kept;
    llvm::SplitString(list, letters);
    llvm::SplitString(other, others, " ");
    llvm::SplitString(result, kept);
    auto isSummed = [&](StringRef letter) {
      return llvm::is_contained(others, letter) &&
             !llvm::is_contained(kept, letter);
    };
    size_t summed = llvm::count_if(letters, isSummed);
    if (llvm::all_of(ArrayRef(letters).take_back(summed), isSummed))
      return 0;
    if (llvm::all_of(ArrayRef(letters).take_front(summed), isSummed))
      return static_cast<int64_t>(summed);
    return op.emitOpError() << "cannot be a product of codes: what \""
                            << op.getSpec() << "\" sums over stands neither "
                            << "first nor last in \"" << list.trim() << "\"";
  }

  Codes codesOf(ContractOp op, Value value, StringRef list, int64_t rotate,
                Type format, bool powerOfTwo, ArrayAttr axes) {
    SmallVector<StringRef> letters;
    llvm::SplitString(list, letters);
    std::rotate(letters.begin(), letters.begin() + rotate, letters.end());
    Codes &known = codes[{value, rotate}];
    if (!known.codes) {
      Value amax = amaxOf(op, value, axes);
      auto type = cast<RankedTensorType>(value.getType());
      SmallVector<int64_t> shape(type.getShape());
      std::rotate(shape.begin(), shape.begin() + rotate, shape.end());
      auto made = QuantizeOp::create(
          builder, op.getLoc(), RankedTensorType::get(shape, format),
          amax.getType(), value, amax, rotate, powerOfTwo);
      std::string name = nameOf(value).str() + (rotate ? "_turned" : "");
      setNames(made,
               {uniqueName(name + "_codes"), uniqueName(name + "_scale")});
      known.codes = made.getCodes();
      known.scale = made.getScale();
    }
    return {known.codes, known.scale, llvm::join(letters, " ")};
  }

  /// The largest magnitude over all ranks that hold parts of the tensor.
  Value amaxOf(ContractOp op, Value value, ArrayAttr axes) {
    Value &known = largest[value];
    if (known)
      return known;
    auto number = RankedTensorType::get({}, builder.getF32Type());
    std::string name = uniqueName(nameOf(value).str() + "_amax");
    auto amax = AmaxOp::create(builder, op.getLoc(), number, value);
    setNames(amax, {name});
    known = amax.getResult();
    if (axes.empty())
      return known;
    auto reduce = dist::AllReduceOp::create(
        builder,
        NameLoc::get(builder.getStringAttr(
                         "ranks that hold parts of a tensor share its scale"),
                     op.getLoc()),
        number, known, dist::Reduction::Max, mesh, axes);
    setNames(reduce, {name});
    return known = reduce.getResult();
  }

  std::string uniqueName(StringRef name) {
    std::string unique = name.str();
    for (unsigned number = 2; !names.insert(unique).second; ++number)
      unique = name.str() + "." + std::to_string(number);
    return unique;
  }

  Block &block;
  dist::MeshAttr mesh;
  OpBuilder builder;
  llvm::StringSet<> names;
  llvm::DenseMap<std::pair<Value, int64_t>, Codes> codes;
  llvm::DenseMap<Value, Value> largest;
};

struct QuantizeProductsPass
    : heddle::impl::QuantizeProductsPassBase<QuantizeProductsPass> {
  void runOnOperation() override {
    auto mesh = getOperation()->getAttrOfType<dist::MeshAttr>(dist::kMeshName);
    SmallVector<Block *> blocks;
    getOperation().walk([&](ContractOp op) {
      if (op->hasAttr(kScaledName) &&
          (blocks.empty() || blocks.back() != op->getBlock()) &&
          !llvm::is_contained(blocks, op->getBlock()))
        blocks.push_back(op->getBlock());
    });
    for (Block *block : blocks)
      if (failed(Quantizer(*block, mesh).run()))
        return signalPassFailure();
  }
};

} // namespace
