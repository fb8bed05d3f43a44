#include "TensorForms.h"

#include <fmt/format.h>

namespace heddle {

static std::map<std::string, TensorForm> &forms() {
  static std::map<std::string, TensorForm> all = {
      {"megatron", [](const ModelConfig &model, const Plan &) {
         return PlanTensor{megatronRules(model), {}, {}};
       }}};
  return all;
}

const std::map<std::string, TensorForm> &detail::tensorForms() {
  return forms();
}

Result<void> addTensorForm(const std::string &word, TensorForm form) {
  if (!forms().try_emplace(word, std::move(form)).second)
    return Error{fmt::format("\"{}\" is a word for `tensor` already; the "
                             "plug-in has to choose another one",
                             word)};
  return {};
}

} // namespace heddle
