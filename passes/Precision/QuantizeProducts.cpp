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
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::precision;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_QUANTIZEPRODUCTSPASS
#include "passes/Precision/Passes.h.inc"
} // namespace heddle

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
    Value tensorScale;   ///< beside those of blocks; else none
    std::string letters; ///< of the codes
  };
  /// So many dimensions of an operand are summed over, its last when it has
  /// been rotated by as many or by none.
  struct Sum {
    int64_t rotate, over;
  };

  LogicalResult quantize(ContractOp op) {
    FailureOr<std::optional<Scaling>> scaling = Scaling::of(op);
    if (failed(scaling))
      return failure();
    if (!*scaling)
      return success();
    auto axes = op->getAttrOfType<ArrayAttr>(kScaleAxesName);
    bool hasAxes = (*scaling)->hasTensorScale();
    if (hasAxes && (!axes || axes.size() != 2))
      return op.emitOpError()
             << "is to be scaled, but has no " << kScaleAxesName;
    auto [left, result] = op.getSpec().split("->");
    auto [first, second] = left.split(",");
    builder.setInsertionPoint(op);
    Codes operands[2];
    const Value values[] = {op.getLhs(), op.getRhs()};
    const StringRef lists[] = {first, second};
    for (unsigned i : {0, 1}) {
      FailureOr<Sum> sum = sumOf(op, lists[i], lists[1 - i], result);
      if (failed(sum))
        return failure();
      FailureOr<Value> mixed = mixedOf(op, values[i], *sum, **scaling);
      if (failed(mixed))
        return failure();
      operands[i] = codesOf(op, *mixed, lists[i], *sum, **scaling, i,
                            hasAxes ? cast<ArrayAttr>(axes[i]) : ArrayAttr());
    }
    SmallVector<Value> scales = {operands[0].scale, operands[1].scale};
    if ((*scaling)->hasTwoLevels())
      scales.append({operands[0].tensorScale, operands[1].tensorScale});
    auto product = ContractOp::create(
        builder, op.getLoc(), op.getType(),
        operands[0].letters + ", " + operands[1].letters + " -> " +
            result.trim().str(),
        operands[0].codes, operands[1].codes, scales, (*scaling)->blocks);
    if (StringRef name = getName(op.getResult()); !name.empty())
      setNames(product, {name.str()});
    op.replaceAllUsesWith(product.getResult());
    op.erase();
    return success();
  }

  /// What is summed over comes last, where need be by rotating the operand:
  /// products of 8 bits have no other form on GPUs.
  FailureOr<Sum> sumOf(ContractOp op, StringRef list, StringRef other,
                       StringRef result) {
    SmallVector<StringRef> letters, others, kept;
    llvm::SplitString(list, letters);
    llvm::SplitString(other, others, " ");
    llvm::SplitString(result, kept);
    auto isSummed = [&](StringRef letter) {
      return llvm::is_contained(others, letter) &&
             !llvm::is_contained(kept, letter);
    };
    int64_t summed = llvm::count_if(letters, isSummed);
    if (llvm::all_of(ArrayRef(letters).take_back(summed), isSummed))
      return Sum{0, summed};
    if (llvm::all_of(ArrayRef(letters).take_front(summed), isSummed))
      return Sum{summed, summed};
    return op.emitOpError() << "cannot be a product of codes: what \""
                            << op.getSpec() << "\" sums over stands neither "
                            << "first nor last in \"" << list.trim() << "\"";
  }

  /// The operand, mixed along what is summed over where the recipe says so.
  FailureOr<Value> mixedOf(ContractOp op, Value value, Sum sum,
                           const Scaling &scaling) {
    if (!scaling.signs)
      return value;
    if (sum.rotate == 0)
      return op.emitOpError() << "cannot mix what \"" << op.getSpec()
                              << "\" sums over, which does not stand first";
    Value &known = mixed[value];
    if (!known) {
      auto made =
          HadamardOp::create(builder, op.getLoc(), value.getType(), value,
                             sum.rotate, scaling.blocks[2], *scaling.signs);
      setNames(made, {uniqueName(nameOf(value).str() + "_mixed")});
      known = made.getResult();
    }
    return known;
  }

  Codes codesOf(ContractOp op, Value value, StringRef list, Sum sum,
                const Scaling &scaling, unsigned operand, ArrayAttr axes) {
    SmallVector<StringRef> letters;
    llvm::SplitString(list, letters);
    std::rotate(letters.begin(), letters.begin() + sum.rotate, letters.end());
    Codes &known = codes[{value, {sum.rotate, sum.over}}];
    if (!known.codes) {
      auto type = cast<RankedTensorType>(value.getType());
      SmallVector<int64_t> shape(type.getShape());
      std::rotate(shape.begin(), shape.begin() + sum.rotate, shape.end());
      auto codesType = RankedTensorType::get(shape, scaling.formats[operand]);
      auto made = quantizeOf(op, value, codesType, sum, scaling, operand, axes);
      std::string name = nameOf(value).str() + (sum.rotate ? "_turned" : "");
      SmallVector<std::string> results = {name + "_codes", name + "_scale"};
      if (made.getTensorScale())
        results.push_back(name + "_tensor_scale");
      for (std::string &result : results)
        result = uniqueName(result);
      setNames(made, results);
      known.codes = made.getCodes();
      known.scale = made.getScale();
      known.tensorScale = made.getTensorScale();
    }
    return {known.codes, known.scale, known.tensorScale,
            llvm::join(letters, " ")};
  }

  /// Blocks find their scales themselves: no rank holds a part of one.
  QuantizeOp quantizeOf(ContractOp op, Value value, RankedTensorType codes,
                        Sum sum, const Scaling &scaling, unsigned operand,
                        ArrayAttr axes) {
    auto number = RankedTensorType::get({}, builder.getF32Type());
    StringRef tensor =
        scaling.tensors.empty() ? StringRef() : scaling.tensors[operand];
    Value amax = axes ? amaxOf(op, value, axes, tensor) : Value();
    auto create = [&](Type scales, ArrayRef<int64_t> block, int64_t over) {
      bool isRandom = operand == 0 && scaling.site;
      return QuantizeOp::create(
          builder, op.getLoc(), codes, scales,
          scaling.hasTwoLevels() ? number : Type(), value, amax,
          isRandom ? op.getSeed() : Value(),
          isRandom ? op.getTokenNumbers() : Value(),
          isRandom ? builder.getI64IntegerAttr(*scaling.site) : IntegerAttr(),
          builder.getI64IntegerAttr(sum.rotate),
          builder.getDenseI64ArrayAttr(block), builder.getI64IntegerAttr(over),
          scaling.powerOfTwo ? builder.getUnitAttr() : UnitAttr(),
          isRandom ? shardsOf(op) : DictionaryAttr());
    };
    if (scaling.blocks.empty())
      return create(number, {}, 0);
    const int64_t block[] = {scaling.blocks[operand], scaling.blocks[2]};
    auto countOf = [](ArrayRef<int64_t> sizes, int64_t block) {
      return llvm::divideCeilSigned(ShapedType::getNumElements(sizes), block);
    };
    auto scales = RankedTensorType::get(
        {countOf(codes.getShape().drop_back(sum.over), block[0]),
         countOf(codes.getShape().take_back(sum.over), block[1])},
        scaling.scales);
    return create(scales, block, sum.over);
  }

  /// Which parts of the left operand's dimensions are here, by the factors that
  /// `quantize` has for them.
  DictionaryAttr shardsOf(ContractOp op) {
    DictionaryAttr known = op.getShardsAttr();
    if (!known)
      return {};
    SmallVector<StringRef> letters;
    llvm::SplitString(op.getSpec().split(",").first, letters);
    NamedAttrList shards;
    for (auto [dim, letter] : llvm::enumerate(letters))
      if (Attribute shard = known.get(letter))
        shards.set("q" + std::to_string(dim), shard);
    return shards.getDictionary(op.getContext());
  }

  /// The largest magnitude over all ranks that hold parts of the tensor, noted
  /// as that of `tensor` where it has a history.
  Value amaxOf(ContractOp op, Value value, ArrayAttr axes, StringRef tensor) {
    Value &known = largest[value];
    if (known)
      return known;
    auto number = RankedTensorType::get({}, builder.getF32Type());
    std::string name = uniqueName(nameOf(value).str() + "_amax");
    auto amax = AmaxOp::create(builder, op.getLoc(), number, value);
    setNames(amax, {name});
    if (!tensor.empty())
      amax->setAttr(kTensorName, builder.getStringAttr(tensor));
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
  llvm::DenseMap<std::pair<Value, std::pair<int64_t, int64_t>>, Codes> codes;
  llvm::DenseMap<Value, Value> largest, mixed;
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
