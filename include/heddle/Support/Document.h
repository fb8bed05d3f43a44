//===- Document.h - YAML and JSON with a place for every key ----*- C++ -*-===//
//
// One reader for all files a user writes. Text becomes a tree of values that
// know their line; MapReader takes typed values out of a map and collects what
// is wrong, so that reading code has no error branches:
//
//   Result<Document> document = Document::read(path);
//   if (!document) return document.error();
//   MapReader reader(*document);
//   settings.lr = reader.number("lr", NumberRange::positive());
//   if (auto done = reader.finish(); !done) return done.error();
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_SUPPORT_DOCUMENT_H
#define HEDDLE_SUPPORT_DOCUMENT_H

#include "heddle/Support/Result.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A node of the tree. Plain scalars are typed as YAML 1.2's core schema says
/// (null ~, true, false, numbers); quoted ones are strings.
class DocumentValue {
public:
  enum class Kind { Null, Bool, Number, String, List, Map };
  struct Entry;

  Kind kind = Kind::Null;
  int line = 0;     ///< 1 is the first line
  std::string text; ///< scalars: as written, without quotes
  bool boolean = false;
  double number = 0; ///< may be NaN or infinite: MapReader refuses those
  std::optional<std::int64_t> integer; ///< numbers without fraction in int64
  std::vector<DocumentValue> items;    ///< of a list
  std::vector<Entry> entries; ///< of a map, in file order, no key twice

  bool isNull() const { return kind == Kind::Null; }
  bool isMap() const { return kind == Kind::Map; }
  bool isList() const { return kind == Kind::List; }
  /// The value of `key` in a map; null if there is none or this is no map.
  const DocumentValue *find(std::string_view key) const;
  /// For messages: `-1`, `"abc"`, `a list of 3`, `a map`, `null`.
  std::string describe() const;
};

struct DocumentValue::Entry {
  std::string key;
  int line = 0;
  DocumentValue value;
};

/// A parsed file. Refused with file and line: syntax errors, duplicate keys,
/// text that is not UTF-8, empty files, more than 64 levels, more than 64 MiB,
/// YAML anchors, aliases, tags and second documents.
class Document {
public:
  enum class Syntax { Json, Yaml };

  /// Reads a file: JSON where the name ends in `.json`, else YAML (of which
  /// JSON is nearly a part).
  static Result<Document> read(const std::filesystem::path &path);
  /// Reads text; `file` is the name that messages give.
  static Result<Document> parse(std::string_view text, std::string file,
                                Syntax syntax);

  const std::string &file() const { return name; }
  const DocumentValue &root() const { return tree; }

private:
  std::string name;
  DocumentValue tree;
};

/// Standard library and fmt only, so that the runtime can use it: the JSON
/// half of Document. `file` is the name that messages give.
Result<DocumentValue> parseJson(std::string_view text, const std::string &file);
/// The text as JSON writes it, in quotes.
std::string jsonString(std::string_view text);

/// Inclusive bounds of an integer key.
struct IntegerRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();

  static IntegerRange positive() { return {1, (std::int64_t{1} << 53)}; }
  static IntegerRange nonNegative() { return {0, (std::int64_t{1} << 53)}; }
  std::string describe() const; ///< "an integer from 1 to 8"
};

/// Bounds of a number key. NaN and infinity never pass.
struct NumberRange {
  double min = std::numeric_limits<double>::lowest();
  double max = std::numeric_limits<double>::max();
  bool minExcluded = false;
  bool maxExcluded = false;

  static NumberRange positive() {
    return {0, std::numeric_limits<double>::max(), true, false};
  }
  static NumberRange nonNegative() {
    return {0, std::numeric_limits<double>::max(), false, false};
  }
  /// [0, 1): a rate.
  static NumberRange rate() { return {0, 1, false, true}; }
  std::string describe() const; ///< "a number above 0"
};

/// Reads one map. Every getter makes its key known; an absent key takes the
/// default, or is an error where there is none. On an error the getter returns
/// the default (or 0, false, ""), and finish() gives one message:
/// `FILE:LINE: key 'a.b': found X, expected Y`. Readers of nested maps report
/// to the same place. The document must outlive its readers.
class MapReader {
public:
  explicit MapReader(const Document &document);
  /// A map from anywhere; `path` is what stands before its keys in messages.
  MapReader(const std::string &file, const DocumentValue &map,
            std::string path = "");

  std::int64_t integer(std::string_view key, IntegerRange range,
                       std::optional<std::int64_t> byDefault = {});
  /// Absent or null: no value.
  std::optional<std::int64_t> optionalInteger(std::string_view key,
                                              IntegerRange range);
  double number(std::string_view key, NumberRange range,
                std::optional<double> byDefault = {});
  /// Absent or null: no value.
  std::optional<double> optionalNumber(std::string_view key, NumberRange range);
  bool boolean(std::string_view key, std::optional<bool> byDefault = {});
  std::string string(std::string_view key,
                     std::optional<std::string> byDefault = {});
  /// One of `choices`.
  std::string choice(std::string_view key,
                     const std::vector<std::string> &choices,
                     std::optional<std::string> byDefault = {});
  /// A list of integers, numbers, or strings. `count`: its exact length.
  std::vector<std::int64_t>
  integers(std::string_view key, IntegerRange range,
           std::optional<std::vector<std::int64_t>> byDefault = {},
           std::optional<std::size_t> count = {});
  std::vector<double> numbers(std::string_view key, NumberRange range,
                              std::optional<std::vector<double>> byDefault = {},
                              std::optional<std::size_t> count = {});
  std::vector<std::string>
  strings(std::string_view key,
          std::optional<std::vector<std::string>> byDefault = {});

  /// A nested map; none where the key is absent, null or no map (an error).
  std::optional<MapReader> map(std::string_view key);
  /// A required nested map: as map(), and its absence is an error.
  std::optional<MapReader> requiredMap(std::string_view key);
  /// A list of maps, one reader each; empty where absent.
  std::vector<MapReader> maps(std::string_view key);

  /// Whether the key is there with a value other than null. Makes it known.
  bool has(std::string_view key);
  /// The raw value of a key (null pointer: absent). Makes it known.
  const DocumentValue *value(std::string_view key);
  /// Makes a key known that is not read.
  void know(std::string_view key);

  /// Records an error about `key` (its line, if it is there).
  /// `FILE:LINE: key 'PATH': MESSAGE`.
  void fail(std::string_view key, const std::string &message);
  /// The same at a given line, e.g. of an item of a list.
  void failAt(int line, std::string_view key, const std::string &message);

  /// Whether this reader and its relatives recorded nothing so far. Cross-check
  /// values only if so.
  bool ok() const;
  /// Once, at the end, of the outermost reader: keys that no getter asked for
  /// are errors, in nested maps too, with the nearest known key. Of all errors
  /// it gives the one that explains most: an unknown key, else the first line.
  Result<void> finish();

  const std::string &file() const;
  int line() const; ///< where the map begins
  /// The key's full name in messages: `optimizer.lr`.
  std::string pathOf(std::string_view key) const;

private:
  struct Level; ///< one map: its value, path, known keys
  struct Sink;  ///< all levels and errors of one document

  MapReader(std::shared_ptr<Sink> sink, const DocumentValue &map,
            std::string path);
  const DocumentValue *lookUp(std::string_view key, bool required,
                              const std::string &expected);
  const std::vector<DocumentValue> *list(std::string_view key, bool required,
                                         const std::string &expected,
                                         std::optional<std::size_t> count);
  void mismatch(const DocumentValue &found, std::string_view key,
                const std::string &expected);

  std::shared_ptr<Sink> sink;
  std::shared_ptr<Level> level;
};

/// The candidate nearest to `word` by edit distance, if one is near enough to
/// be meant: at most a third of the word's letters differ.
std::optional<std::string>
nearestName(std::string_view word, const std::vector<std::string> &candidates);

} // namespace heddle

#endif
