#include "Yaml.h"

#include "Scalars.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>
#include <unordered_set>

using namespace heddle;
using detail::errorAt;

namespace {

/// Put behind the text. The parser closes an open quote at the end of the file
/// by itself; then this comment is part of the string.
constexpr std::string_view endMark = "\n# the end of the file\n";

/// Thrown through the parser, which has no other way to stop.
struct Stop {
  Error error;
};

/// Builds the tree from the parser's events: unlike its nodes they tell quoted
/// scalars from plain ones, and aliases cannot blow up the tree.
class TreeBuilder : public YAML::EventHandler {
public:
  explicit TreeBuilder(const std::string &file) : file(file) {}

  DocumentValue root;

  void OnDocumentStart(const YAML::Mark &mark) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark &mark, YAML::anchor_t anchor) override {
    refuse(mark, anchor, "?");
    add(detail::plainScalar("", mark.line + 1));
  }

  void OnAlias(const YAML::Mark &mark, YAML::anchor_t) override {
    stop(mark, "found an alias ('*'), expected a value; write the value out");
  }

  void OnScalar(const YAML::Mark &mark, const std::string &tag,
                YAML::anchor_t anchor, const std::string &text) override {
    refuse(mark, anchor, tag);
    if (text.find("# the end of the file") != text.npos)
      stop(mark, "the quoted string that begins here is not closed");
    if (tag != "!")
      return add(detail::plainScalar(text, mark.line + 1));
    DocumentValue value;
    value.kind = DocumentValue::Kind::String;
    value.line = mark.line + 1;
    value.text = text;
    add(std::move(value));
  }

  void OnSequenceStart(const YAML::Mark &mark, const std::string &tag,
                       YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(DocumentValue::Kind::List, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark &mark, const std::string &tag,
                  YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(DocumentValue::Kind::Map, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

private:
  struct Level {
    DocumentValue value;
    bool hasKey = false; ///< of a map: the next event is a value
    std::unordered_set<std::string> keys = {};
  };

  [[noreturn]] void stop(const YAML::Mark &mark, const std::string &message) {
    throw Stop{errorAt(file, mark.line + 1, message)};
  }

  void refuse(const YAML::Mark &mark, YAML::anchor_t anchor,
              const std::string &tag) {
    if (anchor != 0)
      stop(mark, "found an anchor ('&'), expected a value; write values out");
    if (tag != "?" && tag != "!" && !tag.empty())
      stop(mark,
           fmt::format("found the tag '{}', expected a plain value", tag));
  }

  void open(DocumentValue::Kind kind, const YAML::Mark &mark,
            const std::string &tag, YAML::anchor_t anchor) {
    refuse(mark, anchor, tag);
    if (!levels.empty() && levels.back().value.isMap() && !levels.back().hasKey)
      stop(mark, "found a list or map as a key, expected a word");
    if (levels.size() > static_cast<std::size_t>(detail::maxDepth))
      stop(mark, fmt::format("found more than {} levels of lists and maps, "
                             "expected fewer",
                             detail::maxDepth));
    levels.emplace_back();
    levels.back().value.kind = kind;
    levels.back().value.line = mark.line + 1;
  }

  void close() {
    DocumentValue value = std::move(levels.back().value);
    levels.pop_back();
    add(std::move(value));
  }

  void add(DocumentValue value) {
    if (levels.empty()) {
      root = std::move(value);
      return;
    }
    Level &level = levels.back();
    if (level.value.isList()) {
      level.value.items.push_back(std::move(value));
    } else if (level.hasKey) {
      level.value.entries.back().value = std::move(value);
      level.hasKey = false;
    } else {
      addKey(level, std::move(value));
    }
  }

  void addKey(Level &level, DocumentValue key) {
    if (key.text.empty())
      throw Stop{
          errorAt(file, key.line, "found an empty key, expected a word")};
    if (auto plain = detail::checkKey(key.text, file, key.line); !plain)
      throw Stop{plain.error()};
    if (!level.keys.insert(key.text).second)
      throw Stop{errorAt(file, key.line,
                         fmt::format("key '{}' is given twice, expected once; "
                                     "remove one",
                                     key.text))};
    level.value.entries.push_back({std::move(key.text), key.line, {}});
    level.hasKey = true;
  }

  const std::string &file;
  std::vector<Level> levels;
};

} // namespace

Result<DocumentValue> detail::parseYaml(std::string_view text,
                                        const std::string &file) {
  TreeBuilder builder(file);
  std::istringstream stream{std::string(text) + std::string(endMark)};
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder))
      return Error{fmt::format("{}: the file is empty, expected keys", file)};
    TreeBuilder rest(file);
    if (parser.HandleNextDocument(rest))
      return errorAt(file, std::max(rest.root.line, 1),
                     "found a second YAML document, expected one");
  } catch (const Stop &stopped) {
    return stopped.error;
  } catch (const YAML::Exception &error) {
    return errorAt(file, std::max(error.mark.line, 0) + 1,
                   fmt::format("this is not YAML: {}", error.msg));
  } catch (const std::exception &error) {
    return Error{fmt::format("{}: this is not YAML: {}", file, error.what())};
  }
  return std::move(builder.root);
}
