//===- ApplyPlan.cpp - a plan's decisions onto the module -----------------===//

#include "passes/Planning/ApplyPlan.h"

#include "dialects/Transformer/Transformer.h"
#include "heddle/Model/Parameters.h"
#include "heddle/Plan/PlanLayout.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace heddle;
using dist::LayoutAttr;
using dist::MeshAttr;

namespace {
/// Writes layouts of one plan as attributes.
class PlanWriter {
public:
  PlanWriter(ModuleOp module, const Plan &plan, const ModelConfig &model)
      : module(module), plan(plan), model(model), builder(module.getContext()),
        padded(paddedSizes(plan, model)) {
    SmallVector<Attribute> names;
    SmallVector<int64_t> sizes;
    for (const auto &[name, size] : meshOfPlan(plan, model).axes) {
      names.push_back(builder.getStringAttr(name));
      sizes.push_back(size);
    }
    mesh = MeshAttr::get(module.getContext(), builder.getArrayAttr(names),
                         builder.getDenseI64ArrayAttr(sizes));
  }

  LogicalResult run() {
    module->setAttr(dist::kMeshName, mesh);
    module->setAttr("dist.plan", builder.getStringAttr(writePlan(plan)));
    return failed(writeParameters()) ? failure() : writeValues();
  }

private:
  LayoutAttr layoutOf(const PlanDims &axes, StringRef letters,
                      ArrayRef<int64_t> shape) {
    SmallVector<StringRef> names;
    llvm::SplitString(letters, names);
    SmallVector<Attribute> dims;
    SmallVector<int64_t> stored;
    for (auto [i, list] : llvm::enumerate(axes)) {
      SmallVector<Attribute> here;
      for (const std::string &axis : list)
        here.push_back(builder.getStringAttr(axis));
      dims.push_back(builder.getArrayAttr(here));
      auto size = padded.find(names[i].str());
      bool pads =
          size != padded.end() && i < shape.size() && size->second != shape[i];
      stored.push_back(pads ? size->second : 0);
    }
    ArrayAttr none = builder.getArrayAttr({});
    return LayoutAttr::get(module.getContext(), mesh,
                           builder.getArrayAttr(dims),
                           builder.getDenseI64ArrayAttr(stored), none, none);
  }

  LogicalResult writeParameters() {
    std::vector<ParameterFamily> families = parameters(model);
    for (auto state : module.getOps<transformer::StateOp>()) {
      if (state.getKind() != transformer::StateKind::Parameter)
        continue;
      auto family =
          llvm::find_if(families, [&](const ParameterFamily &candidate) {
            return candidate.name == state.getSymName();
          });
      if (family == families.end())
        return state.emitOpError() << "is no parameter of the plan's model";
      Result<PlanDims> axes = parameterLayout(plan, model, *family);
      if (!axes)
        return state.emitOpError() << axes.error().message;
      state->setAttr(
          dist::kLayoutName,
          layoutOf(*axes, family->letters, state.getTensorType().getShape()));
    }
    return success();
  }

  LogicalResult writeValues() {
    SmallVector<NamedAttribute> values;
    PlanDims batch = {{"dp"}, {}};
    for (StringRef name : {"block.x", "block.delta"}) {
      Result<std::optional<PlanDims>> axes =
          valueLayout(plan, model, std::string_view(name), "b s d");
      if (!axes)
        return module.emitError() << axes.error().message;
      PlanDims dims = *axes ? **axes : PlanDims{{"dp"}, {}, {}};
      batch[0] = dims[0];
      values.push_back(builder.getNamedAttr(name, layoutOf(dims, "b s d", {})));
    }
    for (StringRef name : {"tokens", "labels", "positions", "documents"})
      values.push_back(builder.getNamedAttr(name, layoutOf(batch, "b s", {})));
    module->setAttr(kBatchLayoutName, layoutOf(batch, "b s", {}));
    module->setAttr("dist.values", builder.getDictionaryAttr(values));
    return success();
  }

  ModuleOp module;
  const Plan &plan;
  const ModelConfig &model;
  Builder builder;
  std::map<std::string, std::int64_t> padded;
  MeshAttr mesh;
};
} // namespace

LogicalResult heddle::applyPlan(ModuleOp module, const Plan &plan,
                                const ModelConfig &model) {
  return PlanWriter(module, plan, model).run();
}
