//===- Scalars.h - What JSON and YAML have in common ------------*- C++ -*-===//

#ifndef HEDDLE_LIB_SUPPORT_SCALARS_H
#define HEDDLE_LIB_SUPPORT_SCALARS_H

#include "heddle/Support/Document.h"

#include <string>
#include <string_view>

namespace heddle::detail {

constexpr int maxDepth = 64;

/// Types an unquoted scalar by the core schema of YAML 1.2, of which JSON's
/// literals are a part.
DocumentValue plainScalar(std::string_view text, int line);

/// "FILE:LINE: MESSAGE".
Error errorAt(const std::string &file, int line, const std::string &message);

/// Checks that `text` is UTF-8 without NUL, and not blank; drops a byte order
/// mark.
Result<std::string_view> checkText(std::string_view text,
                                   const std::string &file);

/// Length of the UTF-8 sequence at the start of `text`; 0 if it is none.
/// Refuses overlong forms, surrogates, what lies beyond U+10FFFF, and NUL.
std::size_t sequenceLength(std::string_view text);
/// Bytes of the control character that a text begins with; 0 where it is none.
std::size_t controlLength(std::string_view text);

/// That a key has no control characters: keys stand in messages and logs.
Result<void> checkKey(std::string_view key, const std::string &file, int line);

} // namespace heddle::detail

#endif
