#include "tools/heddle/FamilyLayout.h"

#include <iterator>
#include <map>
#include <sstream>

using namespace heddle;
using namespace heddle::tool;

std::vector<std::string> tool::splitWords(const std::string &text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

Result<FamilyLayout> tool::familyLayout(const Plan &plan,
                                        const ModelConfig &model,
                                        const ParameterFamily &family) {
  Result<PlanDims> dims = parameterLayout(plan, model, family);
  if (!dims)
    return dims.error();
  FamilyLayout layout{*dims, {}};
  ReshardMesh mesh = meshOfPlan(plan, model);
  std::map<std::string, std::int64_t> padded = paddedSizes(plan, model);
  std::vector<std::string> letters = splitWords(family.letters);
  for (std::size_t dim = 0; dim < dims->size(); ++dim) {
    auto found = padded.find(letters[dim]);
    std::int64_t size =
        found == padded.end() ? family.shape[dim] : found->second;
    for (const std::string &axis : (*dims)[dim])
      for (const auto &[name, count] : mesh.axes)
        if (name == axis)
          size /= count;
    layout.local.push_back(size);
  }
  return layout;
}
