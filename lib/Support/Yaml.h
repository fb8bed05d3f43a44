//===- Yaml.h - The YAML half of Document -----------------------*- C++ -*-===//

#ifndef HEDDLE_LIB_SUPPORT_YAML_H
#define HEDDLE_LIB_SUPPORT_YAML_H

#include "heddle/Support/Document.h"

namespace heddle::detail {
/// `text` is checked UTF-8 that is not blank.
Result<DocumentValue> parseYaml(std::string_view text, const std::string &file);
} // namespace heddle::detail

#endif
