#include "runtime/train/Cbor.h"

#include "heddle/Support/Printable.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <unordered_set>

namespace heddle::train {

namespace {

class Decoder {
public:
  explicit Decoder(std::string_view bytes) : bytes(bytes) {}

  Result<DocumentValue> all() {
    DocumentValue value;
    if (!item(value, 0) ||
        (at != bytes.size() && !fail("bytes behind the end")))
      return Error{why};
    return value;
  }

private:
  bool fail(std::string_view what) {
    why = fmt::format("byte {}: {}", at, what);
    return false;
  }

  bool number(size_t count, uint64_t &to) {
    if (bytes.size() - at < count)
      return fail("the file ends within a value");
    to = 0;
    for (size_t i = 0; i < count; ++i)
      to = to << 8 | uint8_t(bytes[at++]);
    return true;
  }

  bool item(DocumentValue &to, int depth) {
    uint64_t head = 0, argument = 0;
    if (depth > 64)
      return fail("more than 64 levels");
    if (!number(1, head))
      return false;
    const unsigned major = unsigned(head >> 5), low = head & 31;
    if (low >= 28)
      return fail("an item of unknown length");
    argument = low;
    if (low >= 24 && !number(size_t(1) << (low - 24), argument))
      return false;
    switch (major) {
    case 0:
    case 1:
      return integer(to, major == 1, argument);
    case 3:
      to.kind = DocumentValue::Kind::String;
      return text(to.text, argument);
    case 4:
      return list(to, argument, depth);
    case 5:
      return map(to, argument, depth);
    case 7:
      return simple(to, low, argument);
    default:
      return fail("a byte string or a tag, which have no use here");
    }
  }

  bool integer(DocumentValue &to, bool negative, uint64_t argument) {
    if (argument > uint64_t(std::numeric_limits<int64_t>::max()))
      return fail("an integer beyond 64 bits");
    to.kind = DocumentValue::Kind::Number;
    to.integer = negative ? -1 - int64_t(argument) : int64_t(argument);
    to.number = double(*to.integer);
    to.text = fmt::format("{}", *to.integer);
    return true;
  }

  bool simple(DocumentValue &to, unsigned low, uint64_t argument) {
    if (low == 20 || low == 21) {
      to.kind = DocumentValue::Kind::Bool;
      to.boolean = low == 21;
    } else if (low == 26 || low == 27) {
      to.kind = DocumentValue::Kind::Number;
      to.number = low == 26 ? double(std::bit_cast<float>(uint32_t(argument)))
                            : std::bit_cast<double>(argument);
      to.text = fmt::format("{}", to.number);
      if (to.number == std::floor(to.number) && std::fabs(to.number) < 1e15)
        to.integer = int64_t(to.number);
    } else if (low != 22) {
      return fail("a simple value other than true, false, null or a float");
    }
    return true;
  }

  bool text(std::string &to, uint64_t length) {
    if (bytes.size() - at < length)
      return fail("the file ends within a text");
    to = bytes.substr(at, length);
    at += length;
    return true;
  }

  bool list(DocumentValue &to, uint64_t count, int depth) {
    to.kind = DocumentValue::Kind::List;
    if (bytes.size() - at < count) // an item has at least one byte
      return fail("the file ends within an array");
    // One by one: lists in lists could ask for all of the rest at each level.
    for (uint64_t i = 0; i < count; ++i)
      if (!item(to.items.emplace_back(), depth + 1))
        return false;
    return true;
  }

  bool map(DocumentValue &to, uint64_t count, int depth) {
    to.kind = DocumentValue::Kind::Map;
    std::unordered_set<std::string> seen;
    for (uint64_t i = 0; i < count; ++i) {
      DocumentValue key;
      if (!item(key, depth + 1))
        return false;
      if (key.kind != DocumentValue::Kind::String)
        return fail("a key that is no text");
      if (!seen.insert(key.text).second)
        return fail(fmt::format("key '{}' again", printable(key.text)));
      to.entries.push_back({key.text, 0, {}});
      if (!item(to.entries.back().value, depth + 1))
        return false;
    }
    return true;
  }

  std::string_view bytes;
  size_t at = 0;
  std::string why;
};

void appendBytes(std::string &to, uint64_t number, int count) {
  for (int i = count - 1; i >= 0; --i)
    to.push_back(char(number >> (8 * i)));
}

} // namespace

Result<DocumentValue> decodeCbor(std::string_view bytes) {
  return Decoder(bytes).all();
}

void appendCborHead(std::string &to, CborMajor major, uint64_t number) {
  const auto head = [&](unsigned low) {
    to.push_back(char(unsigned(major) << 5 | low));
  };
  if (number < 24)
    return head(unsigned(number));
  const int step = number < 1u << 8    ? 0
                   : number < 1u << 16 ? 1
                   : number >> 32      ? 3
                                       : 2;
  head(unsigned(24 + step));
  appendBytes(to, number, 1 << step);
}

void appendCbor(std::string &to, int64_t value) {
  if (value < 0)
    appendCborHead(to, CborMajor::Negative, uint64_t(-1 - value));
  else
    appendCborHead(to, CborMajor::Unsigned, uint64_t(value));
}
void appendCbor(std::string &to, double value) {
  to.push_back(char(0xfb));
  appendBytes(to, std::bit_cast<uint64_t>(value), 8);
}
void appendCbor(std::string &to, bool value) {
  to.push_back(char(value ? 0xf5 : 0xf4));
}
void appendCbor(std::string &to, const std::string &value) {
  appendCborHead(to, CborMajor::Text, value.size());
  to += value;
}

} // namespace heddle::train
