//===- Printable.h - Text of others in messages -----------------*- C++ -*-===//
//
// Names and values of files stand in messages, and messages in logs and on
// terminals. A line break in one would begin a line of its own there, other
// control characters could do worse. Standard library only.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_SUPPORT_PRINTABLE_H
#define HEDDLE_SUPPORT_PRINTABLE_H

#include <string>
#include <string_view>

namespace heddle {

/// Whether a text is UTF-8 without control characters.
bool isPrintable(std::string_view text);

/// The text with control characters and what is no UTF-8 written as \n, \x1b,
/// ...; any other text is left as it is, but that of more than 1000 bytes its
/// middle is left out.
std::string printable(std::string_view text);

} // namespace heddle

#endif
