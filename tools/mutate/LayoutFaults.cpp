//===- LayoutFaults.cpp - Wrong layouts, after Sharding -------------------===//

#include "tools/mutate/Fault.h"

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;

namespace {

std::string describe(dist::ReshardOp op) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (auto function = op->getParentOfType<func::FuncOp>())
    os << "@" << function.getSymName() << ": ";
  os << "reshard to " << dist::getLayout(op.getType()).getShortForm();
  if (auto name = dyn_cast<NameLoc>(op.getLoc()))
    os << " (" << name.getName().getValue() << ")";
  return text;
}

/// The layout with the names of `a` and `b` exchanged in every dimension.
dist::LayoutAttr exchange(dist::LayoutAttr layout, StringRef a, StringRef b) {
  Builder builder(layout.getContext());
  auto rename = [&](ArrayAttr axes) {
    SmallVector<Attribute> renamed;
    for (StringRef axis : axes.getAsValueRange<StringAttr>())
      renamed.push_back(builder.getStringAttr(axis == a   ? b
                                              : axis == b ? a
                                                          : axis));
    return builder.getArrayAttr(renamed);
  };
  SmallVector<Attribute> dims;
  for (auto axes : layout.getDims().getAsRange<ArrayAttr>())
    dims.push_back(rename(axes));
  return dist::LayoutAttr::get(layout.getMesh(), builder.getArrayAttr(dims),
                               layout.getPadded())
      .withPartial(rename(layout.getPartial()))
      .withPartialMax(rename(layout.getPartialMax()))
      .withRuns(rename(layout.getRuns()));
}

RankedTensorType withLayout(Type type, dist::LayoutAttr layout) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get(tensor.getShape(), tensor.getElementType(),
                               layout);
}

/// Where two axes of the mesh exchanged are no layout of the tensor, its
/// verifier would refuse to make it.
bool fits(dist::LayoutAttr layout, RankedTensorType type) {
  auto quiet = [&] {
    return emitError(UnknownLoc::get(type.getContext())) << "no such layout";
  };
  ScopedDiagnosticHandler swallow(type.getContext(),
                                  [](Diagnostic &) { return success(); });
  return succeeded(
      layout.verifyEncoding(type.getShape(), type.getElementType(), quiet));
}

class LayoutFaults {
public:
  std::vector<Fault> find(ModuleOp module) {
    module.walk([&](Operation *op) {
      if (auto reshard = dyn_cast<dist::ReshardOp>(op))
        findIn(reshard);
    });
    for (auto state : module.getOps<transformer::StateOp>())
      findIn(state);
    return std::move(faults);
  }

private:
  void findIn(dist::ReshardOp op) {
    dist::LayoutAttr from = dist::getLayout(op.getInput().getType()),
                     to = dist::getLayout(op.getType());
    // The operand then seems to be what it should become.
    if (from.isPartial() && !to.isPartial())
      faults.push_back({"take a partial value for a whole one", describe(op),
                        [op]() mutable { relabel(op, /*whole=*/true); },
                        isOne(from) ? "the group has one rank"
                        : op.getInput().getDefiningOp<dist::ReshardOp>()
                            ? "the reshard in front does it instead"
                            : ""});
    if (!from.isPartial() && to.isPartial())
      faults.push_back({"miss a make_partial", describe(op),
                        [op]() mutable { relabel(op, /*whole=*/false); },
                        isOne(to) ? "the group has one rank"
                        : op.getInput().getDefiningOp<transformer::ZerosOp>()
                            ? "what is shared is zero"
                            : ""});
    bool again = llvm::all_of(op->getUsers(), llvm::IsaPred<dist::ReshardOp>);
    faults.push_back({"delete a reshard", describe(op),
                      [op]() mutable {
                        op.getResult().replaceAllUsesWith(op.getInput());
                        op.erase();
                      },
                      again ? "the reshard behind does it instead" : ""});
  }

  void findIn(transformer::StateOp state) {
    auto type = dyn_cast<RankedTensorType>(state.getType());
    dist::LayoutAttr layout = type ? dist::getLayout(type) : nullptr;
    if (!layout)
      return;
    auto names = llvm::to_vector(
        layout.getMesh().getNames().getAsValueRange<StringAttr>());
    for (auto [i, a] : llvm::enumerate(names))
      for (StringRef b : ArrayRef(names).drop_front(i + 1)) {
        dist::LayoutAttr other = exchange(layout, a, b);
        if (other != layout && fits(other, type))
          addState(state, type, other);
      }
    // As if each rank kept all.
    if (!layout.getRuns().empty())
      addState(state, type,
               layout.withRuns(ArrayAttr::get(state.getContext(), {})),
               "keep a state whole");
  }

  void addState(transformer::StateOp state, Type type, dist::LayoutAttr other,
                const char *kind = "swap axes of a state's layout") {
    faults.push_back({kind,
                      state.getSymName().str() + ": " + other.getShortForm(),
                      [state, type, other]() mutable {
                        state.setType(withLayout(type, other));
                      }});
  }

public:
  /// The layouts beside states of one rank's tensors.
  std::vector<Fault> findBeside(ModuleOp module) {
    for (auto state : module.getOps<transformer::StateOp>()) {
      auto layout = state->getAttrOfType<dist::LayoutAttr>(dist::kLayoutName);
      auto whole = state->getAttrOfType<TypeAttr>(dist::kGlobalTypeName);
      if (!layout || !whole || layout.isPartial())
        continue;
      auto type = cast<RankedTensorType>(whole.getValue());
      dist::MeshAttr mesh = layout.getMesh();
      auto names =
          llvm::to_vector(mesh.getNames().getAsValueRange<StringAttr>());
      for (auto [i, a] : llvm::enumerate(names))
        for (StringRef b : ArrayRef(names).drop_front(i + 1)) {
          dist::LayoutAttr other = exchange(layout, a, b);
          if (other == layout || !fits(other, type))
            continue;
          bool same = mesh.getSize(a) == 1 && mesh.getSize(b) == 1;
          faults.push_back(
              {"misstate a state's layout",
               state.getSymName().str() + ": " + other.getShortForm(),
               [state, other] { state->setAttr(dist::kLayoutName, other); },
               state.getKind() == transformer::StateKind::GradientSum
                   ? "nobody puts a sum of gradients together"
               : same ? "both groups have one rank"
                      : ""});
        }
    }
    return std::move(faults);
  }

private:
  static bool isOne(dist::LayoutAttr layout) {
    return layout.getMesh().getGroupSize(layout.getPartial()) *
               layout.getMesh().getGroupSize(layout.getPartialMax()) ==
           1;
  }

  /// Gives the value that is resharded the partial axes of the result, or takes
  /// its own away, so that nothing is left to do about them.
  static void relabel(dist::ReshardOp op, bool whole) {
    Value input = op.getInput();
    dist::LayoutAttr from = dist::getLayout(input.getType()),
                     to = dist::getLayout(op.getType());
    auto layout = whole ? from.reduced()
                        : from.withPartial(to.getPartial())
                              .withPartialMax(to.getPartialMax());
    input.setType(withLayout(input.getType(), layout));
  }

  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findLayoutFaults(ModuleOp module) {
  return LayoutFaults().find(module);
}

std::vector<Fault> mutate::findStorageFaults(ModuleOp module) {
  return LayoutFaults().findBeside(module);
}
