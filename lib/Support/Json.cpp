// A parser of our own, because the packaged ones do not keep the line of every
// key, and YAML's refuses some JSON (tabs, surrogate pairs).

#include "Scalars.h"

#include <fmt/format.h>

#include <unordered_set>

using namespace heddle;
using detail::errorAt;

namespace {

class JsonParser {
public:
  JsonParser(std::string_view text, const std::string &file)
      : text(text), file(file) {}

  Result<DocumentValue> parse() {
    DocumentValue root;
    if (auto done = parseValue(root, 0); !done)
      return done.error();
    skipSpace();
    if (at < text.size())
      return unexpected("the end of the file");
    return root;
  }

private:
  Result<void> parseValue(DocumentValue &value, int depth);
  Result<void> parseMap(DocumentValue &value, int depth);
  Result<void> parseList(DocumentValue &value, int depth);
  Result<void> parseString(std::string &out);
  Result<void> parseEscape(std::string &out);
  Result<void> parseLiteral(DocumentValue &value);
  /// The four digits after \u; none if they are not hexadecimal.
  std::optional<unsigned> parseHex();

  void skipSpace() {
    for (; at < text.size(); ++at) {
      char c = text[at];
      if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
        return;
      line += c == '\n';
    }
  }
  bool consume(char c) {
    skipSpace();
    if (at >= text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }
  Error unexpected(std::string_view expected) const {
    if (at >= text.size())
      return errorAt(
          file, line,
          fmt::format("found the end of the file, expected {}", expected));
    // Up to the end of the word, so that a message shows `NaN`, not `N`.
    std::size_t end = text.find_first_of(" \t\r\n,:[]{}\"", at + 1);
    return errorAt(
        file, line,
        fmt::format("found '{}', expected {}",
                    text.substr(at, std::min(end - at, std::size_t{40})),
                    expected));
  }

  std::string_view text;
  const std::string &file;
  std::size_t at = 0;
  int line = 1;
};

} // namespace

Result<void> JsonParser::parseValue(DocumentValue &value, int depth) {
  skipSpace();
  value.line = line;
  if (depth > detail::maxDepth)
    return errorAt(
        file, line,
        fmt::format("found more than {} levels of lists and maps, expected "
                    "fewer",
                    detail::maxDepth));
  if (at >= text.size())
    return unexpected("a value");
  if (text[at] == '{')
    return parseMap(value, depth);
  if (text[at] == '[')
    return parseList(value, depth);
  if (text[at] != '"')
    return parseLiteral(value);
  value.kind = DocumentValue::Kind::String;
  return parseString(value.text);
}

Result<void> JsonParser::parseMap(DocumentValue &value, int depth) {
  value.kind = DocumentValue::Kind::Map;
  ++at;
  if (consume('}'))
    return {};
  std::unordered_set<std::string> seen;
  do {
    skipSpace();
    if (at >= text.size() || text[at] != '"')
      return unexpected("a key in double quotes");
    DocumentValue::Entry entry;
    entry.line = line;
    if (auto done = parseString(entry.key); !done)
      return done;
    if (!seen.insert(entry.key).second)
      return errorAt(file, entry.line,
                     fmt::format("key '{}' is given twice, expected once; "
                                 "remove one",
                                 entry.key));
    if (auto plain = detail::checkKey(entry.key, file, entry.line); !plain)
      return plain;
    if (!consume(':'))
      return unexpected(fmt::format("':' after key '{}'", entry.key));
    if (auto done = parseValue(entry.value, depth + 1); !done)
      return done;
    value.entries.push_back(std::move(entry));
  } while (consume(','));
  return consume('}') ? Result<void>() : unexpected("',' or '}'");
}

Result<void> JsonParser::parseList(DocumentValue &value, int depth) {
  value.kind = DocumentValue::Kind::List;
  ++at;
  if (consume(']'))
    return {};
  do {
    if (auto done = parseValue(value.items.emplace_back(), depth + 1); !done)
      return done;
  } while (consume(','));
  return consume(']') ? Result<void>() : unexpected("',' or ']'");
}

Result<void> JsonParser::parseString(std::string &out) {
  int start = line;
  for (++at; at < text.size(); ++at) {
    char c = text[at];
    if (c == '"') {
      ++at;
      return {};
    }
    if (static_cast<unsigned char>(c) < 0x20)
      return errorAt(file, start,
                     "found a control character in a string, expected the "
                     "closing '\"' before it");
    if (c != '\\')
      out += c;
    else if (auto done = parseEscape(out); !done)
      return done;
  }
  return errorAt(file, start, "the string that begins here is not closed");
}

std::optional<unsigned> JsonParser::parseHex() {
  unsigned code = 0;
  for (int i = 0; i < 4; ++i) {
    char c = ++at < text.size() ? text[at] : ' ';
    unsigned digit = c >= '0' && c <= '9'   ? c - '0'
                     : c >= 'a' && c <= 'f' ? c - 'a' + 10
                     : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                            : 16;
    if (digit == 16)
      return std::nullopt;
    code = code * 16 + digit;
  }
  return code;
}

static void appendUtf8(std::string &out, unsigned code) {
  auto put = [&](unsigned byte) { out += static_cast<char>(byte); };
  auto tail = [&](int shift) { put(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    put(0xf0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

/// `at` is the backslash; afterwards the last character of the escape.
Result<void> JsonParser::parseEscape(std::string &out) {
  constexpr std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
  char c = ++at < text.size() ? text[at] : ' ';
  if (std::size_t i = names.find(c); i != names.npos) {
    out += values[i];
    return {};
  }
  std::optional<unsigned> code = c == 'u' ? parseHex() : std::nullopt;
  bool high = code && *code >= 0xd800 && *code < 0xdc00;
  if (high && text.substr(at + 1).starts_with("\\u")) {
    at += 2;
    std::optional<unsigned> low = parseHex();
    if (low && *low >= 0xdc00 && *low < 0xe000)
      code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
  }
  if (!code || (*code >= 0xd800 && *code < 0xe000) || *code == 0)
    return errorAt(file, line,
                   "found a bad escape in a string, expected one "
                   "of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
  appendUtf8(out, *code);
  return {};
}

/// "01", which is a number in YAML alone.
static bool hasLeadingZero(std::string_view number) {
  number.remove_prefix(number[0] == '-');
  return number.size() > 1 && number[0] == '0' && number[1] >= '0' &&
         number[1] <= '9';
}

Result<void> JsonParser::parseLiteral(DocumentValue &value) {
  std::size_t end = text.find_first_not_of(
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-._", at);
  std::string_view word =
      text.substr(at, end == text.npos ? text.npos : end - at);
  DocumentValue scalar = detail::plainScalar(word, line);
  bool name = word == "true" || word == "false" || word == "null";
  bool number = scalar.kind == DocumentValue::Kind::Number &&
                (word[0] == '-' || (word[0] >= '0' && word[0] <= '9')) &&
                word.back() != '.' && !word.starts_with("-.") &&
                !hasLeadingZero(word);
  if (!name && !number)
    return unexpected("a JSON value (a string needs double quotes)");
  value = std::move(scalar);
  at += word.size();
  return {};
}

Result<DocumentValue> heddle::parseJson(std::string_view text,
                                        const std::string &file) {
  Result<std::string_view> checked = detail::checkText(text, file);
  if (!checked)
    return checked.error();
  return JsonParser(*checked, file).parse();
}

const DocumentValue *DocumentValue::find(std::string_view key) const {
  for (const Entry &entry : entries)
    if (entry.key == key)
      return &entry.value;
  return nullptr;
}

std::string DocumentValue::describe() const {
  switch (kind) {
  case Kind::Null:
    return "null";
  case Kind::Bool:
    return boolean ? "true" : "false";
  case Kind::Number:
    return text.size() <= 40 ? text : text.substr(0, 37) + "...";
  case Kind::String:
    return text.size() <= 60 ? jsonString(text)
                             : jsonString(text.substr(0, 57) + "...");
  case Kind::List:
    return fmt::format("a list of {}", items.size());
  case Kind::Map:
    return "a map";
  }
  return "nothing";
}
