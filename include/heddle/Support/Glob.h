//===- Glob.h - Patterns on parameter and value names -----------*- C++ -*-===//

#ifndef HEDDLE_SUPPORT_GLOB_H
#define HEDDLE_SUPPORT_GLOB_H

#include "heddle/Support/Result.h"

#include <string>
#include <string_view>

namespace heddle {

/// `*` any run of characters (dots too), `?` one, `[abc]` `[a-c]` `[!abc]` one
/// of a set; anything else is itself. The whole name must match.
class Glob {
public:
  /// An error where a `[` is not closed or a range runs backwards.
  static Result<Glob> parse(std::string pattern);

  bool matches(std::string_view name) const { return isMatch(text, name); }
  /// Without a copy of the pattern. One that `parse` refuses matches nothing.
  static bool isMatch(std::string_view pattern, std::string_view name);
  const std::string &pattern() const { return text; }

private:
  explicit Glob(std::string pattern) : text(std::move(pattern)) {}

  std::string text;
};

} // namespace heddle

#endif
