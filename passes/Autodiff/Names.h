//===- Names.h - names that are unique in a function ------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_AUTODIFF_NAMES_H
#define HEDDLE_PASSES_AUTODIFF_NAMES_H

#include "llvm/ADT/StringSet.h"

#include <string>

namespace heddle::autodiff {

class Names {
public:
  void add(llvm::StringRef name) { taken.insert(name); }

  /// `name`, or `name.2`, `name.3`, ...: the first that is not taken.
  std::string unique(llvm::StringRef name) {
    std::string candidate = name.str();
    for (int i = 2; !taken.insert(candidate).second; ++i)
      candidate = name.str() + "." + std::to_string(i);
    return candidate;
  }

private:
  llvm::StringSet<> taken;
};

} // namespace heddle::autodiff

#endif // HEDDLE_PASSES_AUTODIFF_NAMES_H
