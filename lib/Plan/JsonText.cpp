#include "JsonText.h"

#include <fmt/format.h>

namespace heddle::detail {

static constexpr std::size_t lineWidth = 136;

static std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < 0x20)
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      result += c;
  }
  return result + "\"";
}

JsonText::JsonText(std::int64_t value) : leaf(fmt::format("{}", value)) {}
JsonText::JsonText(bool value) : leaf(value ? "true" : "false") {}
JsonText::JsonText(std::string_view value) : leaf(quoted(value)) {}

JsonText JsonText::list() { return JsonText(Kind::List); }
JsonText JsonText::map() { return JsonText(Kind::Map); }

void JsonText::add(JsonText element) {
  members.emplace_back("", std::move(element));
}

void JsonText::add(std::string_view key, JsonText value) {
  members.emplace_back(quoted(key) + ": ", std::move(value));
}

std::string JsonText::onOneLine() const {
  if (kind == Kind::Leaf)
    return leaf;
  std::string text(1, kind == Kind::List ? '[' : '{');
  for (const auto &[key, value] : members) {
    if (&key != &members.front().first)
      text += ", ";
    text += key + value.onOneLine();
  }
  return text + (kind == Kind::List ? ']' : '}');
}

void JsonText::print(std::size_t indent, std::size_t used,
                     std::string &out) const {
  std::string line = onOneLine();
  if (members.empty() || (indent > 0 && used + line.size() <= lineWidth)) {
    out += line;
    return;
  }
  const std::size_t inner = indent + 2;
  out += kind == Kind::List ? "[\n" : "{\n";
  for (const auto &[key, value] : members) {
    out.append(inner, ' ');
    out += key;
    value.print(inner, inner + key.size() + 1, out);
    out += &key == &members.back().first ? "\n" : ",\n";
  }
  out.append(indent, ' ');
  out += kind == Kind::List ? ']' : '}';
}

std::string JsonText::print() const {
  std::string text;
  print(0, 0, text);
  return text + "\n";
}

} // namespace heddle::detail
