//===- Cbor.h - CBOR to and from values -----------------------------------===//

#ifndef RUNTIME_TRAIN_CBOR_H
#define RUNTIME_TRAIN_CBOR_H

#include "heddle/Support/Document.h"
#include "heddle/Support/Result.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::train {

/// Reads one item of RFC 8949, and nothing behind it: integers in int64,
/// floats, booleans, null, text, arrays and maps with text keys, all of
/// definite length, at most 64 levels deep.
Result<DocumentValue> decodeCbor(std::string_view bytes);

/// Heads and scalars of the same, to be put one behind another.
enum class CborMajor {
  Unsigned = 0,
  Negative = 1,
  Text = 3,
  Array = 4,
  Map = 5
};
void appendCborHead(std::string &to, CborMajor major, uint64_t number);
void appendCbor(std::string &to, int64_t value);
void appendCbor(std::string &to, double value);
void appendCbor(std::string &to, bool value);
void appendCbor(std::string &to, const std::string &value);

} // namespace heddle::train

#endif
