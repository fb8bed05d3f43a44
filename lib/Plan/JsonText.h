// JSON as people lay it out: a list or map stands on one line where it fits,
// else one member a line. The text depends on the value alone.

#ifndef HEDDLE_LIB_PLAN_JSONTEXT_H
#define HEDDLE_LIB_PLAN_JSONTEXT_H

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::detail {

class JsonText {
public:
  JsonText(std::int64_t value);
  JsonText(bool value);
  JsonText(std::string_view value);
  JsonText(const std::string &value) : JsonText(std::string_view(value)) {}
  JsonText(const char *value) : JsonText(std::string_view(value)) {}

  static JsonText list();
  static JsonText map();

  void add(JsonText element);
  void add(std::string_view key, JsonText value);

  /// The whole text, members of the outermost value on lines of their own.
  std::string print() const;

private:
  enum class Kind { Leaf, List, Map };
  explicit JsonText(Kind kind) : kind(kind) {}

  std::string onOneLine() const;
  void print(std::size_t indent, std::size_t used, std::string &out) const;

  Kind kind = Kind::Leaf;
  std::string leaf;
  std::vector<std::pair<std::string, JsonText>> members; // keys quoted
};

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLAN_JSONTEXT_H
