#include "Scalars.h"

#include "heddle/Support/Printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

using namespace heddle;

static bool allDigits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c >= '0' && c <= '9';
  });
}

/// [-+]? (. digits | digits (. digits?)?) ([eE] [-+]? digits)?
static bool looksLikeNumber(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+'))
    text.remove_prefix(1);
  if (std::size_t e = text.find_first_of("eE"); e != text.npos) {
    std::string_view exponent = text.substr(e + 1);
    if (!exponent.empty() && (exponent[0] == '-' || exponent[0] == '+'))
      exponent.remove_prefix(1);
    if (!allDigits(exponent))
      return false;
    text = text.substr(0, e);
  }
  std::size_t point = text.find('.');
  if (point == text.npos)
    return allDigits(text);
  std::string_view whole = text.substr(0, point),
                   fraction = text.substr(point + 1);
  return (allDigits(whole) && (fraction.empty() || allDigits(fraction))) ||
         (whole.empty() && allDigits(fraction));
}

static double parseDouble(std::string_view text) {
  double number = 0;
  auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc::result_out_of_range)
    return number;
  // from_chars does not say on which side: only a negative exponent is small.
  return text.find("e-") != text.npos || text.find("E-") != text.npos
             ? 0
             : std::numeric_limits<double>::infinity();
}

static void setNumber(DocumentValue &value, std::string_view text) {
  value.kind = DocumentValue::Kind::Number;
  if (text[0] == '+')
    text.remove_prefix(1);
  value.number = parseDouble(text);
  std::int64_t integer = 0;
  const char *last = text.data() + text.size();
  auto [end, status] = std::from_chars(text.data(), last, integer);
  if (status == std::errc() && end == last)
    value.integer = integer;
}

DocumentValue detail::plainScalar(std::string_view text, int line) {
  DocumentValue value;
  value.line = line;
  value.text = text;
  std::string_view unsignedText = text;
  if (!text.empty() && (text[0] == '-' || text[0] == '+'))
    unsignedText.remove_prefix(1);
  if (text.empty() || text == "~" || text == "null" || text == "Null" ||
      text == "NULL") {
    value.kind = DocumentValue::Kind::Null;
  } else if (text == "true" || text == "True" || text == "TRUE" ||
             text == "false" || text == "False" || text == "FALSE") {
    value.kind = DocumentValue::Kind::Bool;
    value.boolean = text[0] == 't' || text[0] == 'T';
  } else if (looksLikeNumber(text)) {
    setNumber(value, text);
  } else if (unsignedText == ".inf" || unsignedText == ".Inf" ||
             unsignedText == ".INF") {
    value.kind = DocumentValue::Kind::Number;
    value.number = std::numeric_limits<double>::infinity();
  } else if (text == ".nan" || text == ".NaN" || text == ".NAN") {
    value.kind = DocumentValue::Kind::Number;
    value.number = std::numeric_limits<double>::quiet_NaN();
  } else {
    value.kind = DocumentValue::Kind::String;
  }
  return value;
}

Error detail::errorAt(const std::string &file, int line,
                      const std::string &message) {
  return {fmt::format("{}:{}: {}", file, line, printable(message))};
}

Result<std::string_view> detail::checkText(std::string_view text,
                                           const std::string &file) {
  if (text.starts_with("\xef\xbb\xbf"))
    text.remove_prefix(3);
  int line = 1;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= ' ' && byte < 0x80) { // nearly all
      ++i;
      continue;
    }
    std::size_t length = detail::sequenceLength(text.substr(i));
    if (length == 0)
      return errorAt(
          file, line,
          fmt::format("found byte 0x{:02x}, expected UTF-8 text", byte));
    line += text[i] == '\n';
    i += length;
  }
  if (text.find_first_not_of(" \t\r\n") == text.npos)
    return Error{fmt::format("{}: the file is empty, expected keys", file)};
  return text;
}

Result<void> detail::checkKey(std::string_view key, const std::string &file,
                              int line) {
  for (std::size_t i = 0; i < key.size(); ++i)
    if (detail::controlLength(key.substr(i)))
      return errorAt(file, line,
                     fmt::format("found a control character in key {}, "
                                 "expected a word",
                                 jsonString(key.substr(0, 60))));
  return {};
}

std::string heddle::jsonString(std::string_view text) {
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const std::size_t control = detail::controlLength(text.substr(i));
    if (c == '"' || c == '\\')
      out += '\\';
    if (control == 0) {
      out += c;
      continue;
    }
    // The second byte of two has the character's number.
    i += control - 1;
    out +=
        fmt::format("\\u{:04x}",
                    static_cast<unsigned>(static_cast<unsigned char>(text[i])));
  }
  return out + '"';
}
