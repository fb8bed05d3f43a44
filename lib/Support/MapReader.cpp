#include "heddle/Support/Document.h"

#include "Scalars.h"

#include "heddle/Support/Printable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

using namespace heddle;

struct MapReader::Level {
  const DocumentValue *map;
  std::string path;
  std::vector<std::string> known; ///< in the order in which they were asked for
  std::unordered_set<std::string> isKnown; ///< the same

  const DocumentValue *find(std::string_view key);

private:
  /// Of maps with many keys, such as the tensors of a checkpoint.
  std::unordered_map<std::string_view, const DocumentValue *> index;
};

const DocumentValue *MapReader::Level::find(std::string_view key) {
  constexpr std::size_t kMany = 32;
  if (map->entries.size() < kMany)
    return map->find(key);
  if (index.empty())
    for (const DocumentValue::Entry &entry : map->entries)
      index.emplace(entry.key, &entry.value);
  auto found = index.find(key);
  return found == index.end() ? nullptr : found->second;
}

struct MapReader::Sink {
  struct Problem {
    int rank; ///< 0: an unknown key, which explains a missing one
    int line;
    std::string message;
  };

  std::string file;
  std::vector<std::shared_ptr<Level>> levels;
  std::unordered_map<const DocumentValue *, std::shared_ptr<Level>> levelOf;
  std::optional<Problem> worst; ///< the one that explains most

  void add(int rank, int line, const std::string &message) {
    if (!worst || std::tie(rank, line) < std::tie(worst->rank, worst->line))
      worst = {rank, line,
               fmt::format("{}:{}: {}", file, line, printable(message))};
  }
  void rejectUnknownKeys(const Level &level);
};

/// Longer ones are no word, and the table of distances would be large.
static constexpr std::size_t maxWord = 200;

/// The candidate with the longest run of letters in common: what helps where
/// none is near, such as partial_rotary_factor for rotary_fraction.
static std::optional<std::string>
sharingMost(std::string_view word, const std::vector<std::string> &candidates) {
  std::optional<std::string> found;
  std::size_t longest = 3; // fewer letters say nothing
  if (word.size() > maxWord)
    return found;
  for (const std::string &candidate : candidates)
    for (std::size_t at = 0; at + longest < word.size(); ++at)
      while (at + longest < word.size() &&
             candidate.find(word.substr(at, longest + 1)) != candidate.npos) {
        ++longest;
        found = candidate;
      }
  return found;
}

static std::string joinPath(const std::string &path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

/// Tells the first one: advice takes time, and one message is given.
void MapReader::Sink::rejectUnknownKeys(const Level &level) {
  for (const DocumentValue::Entry &entry : level.map->entries) {
    if (level.isKnown.contains(entry.key))
      continue;
    std::string advice;
    if (auto near = nearestName(entry.key, level.known))
      advice = fmt::format("; did you mean '{}'?", *near);
    else if (level.known.size() <= 12)
      advice = fmt::format("; known keys: {}", fmt::join(level.known, ", "));
    else if (auto any = sharingMost(entry.key, level.known))
      advice = fmt::format("; the nearest known key is '{}'", *any);
    return add(0, entry.line,
               fmt::format("unknown key '{}'{}",
                           joinPath(level.path, entry.key), advice));
  }
}

MapReader::MapReader(std::shared_ptr<Sink> shared, const DocumentValue &map,
                     std::string path)
    : sink(std::move(shared)) {
  // A map may be opened more than once; what one reader knows is known.
  std::shared_ptr<Level> &known = sink->levelOf[&map];
  if (known) {
    level = known;
    return;
  }
  level = known = std::make_shared<Level>();
  level->map = &map;
  level->path = std::move(path);
  sink->levels.push_back(level);
}

MapReader::MapReader(const std::string &file, const DocumentValue &map,
                     std::string path)
    : MapReader(std::make_shared<Sink>(), map, std::move(path)) {
  sink->file = file;
  if (!map.isMap())
    sink->add(
        0, map.line,
        fmt::format("found {}, expected keys and values", map.describe()));
}

MapReader::MapReader(const Document &document)
    : MapReader(document.file(), document.root()) {}

const std::string &MapReader::file() const { return sink->file; }
int MapReader::line() const { return level->map->line; }
bool MapReader::ok() const { return !sink->worst; }

std::string MapReader::pathOf(std::string_view key) const {
  return joinPath(level->path, key);
}

void MapReader::know(std::string_view key) {
  if (level->isKnown.emplace(key).second)
    level->known.emplace_back(key);
}

const DocumentValue *MapReader::value(std::string_view key) {
  know(key);
  return level->find(key);
}

bool MapReader::has(std::string_view key) {
  const DocumentValue *found = value(key);
  return found && !found->isNull();
}

void MapReader::failAt(int line, std::string_view key,
                       const std::string &message) {
  sink->add(1, line, fmt::format("key '{}': {}", pathOf(key), message));
}

void MapReader::fail(std::string_view key, const std::string &message) {
  const DocumentValue *found = level->find(key);
  failAt(found ? found->line : line(), key, message);
}

void MapReader::mismatch(const DocumentValue &found, std::string_view key,
                         const std::string &expected) {
  failAt(found.line, key,
         fmt::format("found {}, expected {}", found.describe(), expected));
}

const DocumentValue *MapReader::lookUp(std::string_view key, bool required,
                                       const std::string &expected) {
  const DocumentValue *found = value(key);
  if (!found && required && level->map->isMap())
    sink->add(
        1, line(),
        fmt::format("key '{}' is missing; add it ({})", pathOf(key), expected));
  return found;
}

static std::optional<std::int64_t> integerIn(const DocumentValue &value,
                                             IntegerRange range) {
  if (value.kind != DocumentValue::Kind::Number || !value.integer ||
      *value.integer < range.min || *value.integer > range.max)
    return std::nullopt;
  return value.integer;
}

/// An upper limit that is as good as none is told where it is what is missed.
static std::string expectedOf(const DocumentValue &found, IntegerRange range) {
  return found.kind == DocumentValue::Kind::Number &&
                 found.number > static_cast<double>(range.max)
             ? fmt::format("an integer from {} to {}", range.min, range.max)
             : range.describe();
}

static std::optional<double> numberIn(const DocumentValue &value,
                                      NumberRange range) {
  double x = value.number;
  if (value.kind != DocumentValue::Kind::Number || !std::isfinite(x) ||
      x < range.min || x > range.max || (range.minExcluded && x == range.min) ||
      (range.maxExcluded && x == range.max))
    return std::nullopt;
  return x;
}

std::int64_t MapReader::integer(std::string_view key, IntegerRange range,
                                std::optional<std::int64_t> byDefault) {
  const DocumentValue *found = lookUp(key, !byDefault, range.describe());
  std::optional<std::int64_t> read;
  if (found && !(read = integerIn(*found, range)))
    mismatch(*found, key, expectedOf(*found, range));
  return read.value_or(byDefault.value_or(0));
}

std::optional<std::int64_t> MapReader::optionalInteger(std::string_view key,
                                                       IntegerRange range) {
  if (!has(key))
    return std::nullopt;
  return integer(key, range);
}

double MapReader::number(std::string_view key, NumberRange range,
                         std::optional<double> byDefault) {
  const DocumentValue *found = lookUp(key, !byDefault, range.describe());
  std::optional<double> read;
  if (found && !(read = numberIn(*found, range)))
    mismatch(*found, key, range.describe());
  return read.value_or(byDefault.value_or(0));
}

std::optional<double> MapReader::optionalNumber(std::string_view key,
                                                NumberRange range) {
  if (!has(key))
    return std::nullopt;
  return number(key, range);
}

bool MapReader::boolean(std::string_view key, std::optional<bool> byDefault) {
  const DocumentValue *found = lookUp(key, !byDefault, "true or false");
  if (found && found->kind == DocumentValue::Kind::Bool)
    return found->boolean;
  if (found)
    mismatch(*found, key, "true or false");
  return byDefault.value_or(false);
}

std::string MapReader::string(std::string_view key,
                              std::optional<std::string> byDefault) {
  const DocumentValue *found = lookUp(key, !byDefault, "a string");
  if (found && found->kind == DocumentValue::Kind::String &&
      !found->text.empty())
    return found->text;
  if (found)
    mismatch(*found, key, "a string");
  return byDefault.value_or("");
}

std::string MapReader::choice(std::string_view key,
                              const std::vector<std::string> &choices,
                              std::optional<std::string> byDefault) {
  std::string expected =
      choices.size() == 1 ? choices.front()
                          : fmt::format("one of {}", fmt::join(choices, ", "));
  const DocumentValue *found = lookUp(key, !byDefault, expected);
  bool scalar = found && !found->isList() && !found->isMap();
  if (scalar && std::count(choices.begin(), choices.end(), found->text))
    return found->text;
  if (found)
    mismatch(*found, key, expected);
  return byDefault.value_or("");
}

const std::vector<DocumentValue> *
MapReader::list(std::string_view key, bool required,
                const std::string &expected, std::optional<std::size_t> count) {
  const DocumentValue *found = lookUp(key, required, expected);
  if (!found)
    return nullptr;
  if (!found->isList() || (count && found->items.size() != *count)) {
    mismatch(*found, key, expected);
    return nullptr;
  }
  return &found->items;
}

static std::string listOf(std::optional<std::size_t> count,
                          const std::string &each) {
  return count ? fmt::format("a list of {}, each {}", *count, each)
               : fmt::format("a list, each {}", each);
}

std::vector<std::int64_t>
MapReader::integers(std::string_view key, IntegerRange range,
                    std::optional<std::vector<std::int64_t>> byDefault,
                    std::optional<std::size_t> count) {
  const std::vector<DocumentValue> *found =
      list(key, !byDefault, listOf(count, range.describe()), count);
  if (!found)
    return byDefault.value_or(std::vector<std::int64_t>(count.value_or(0)));
  std::vector<std::int64_t> read;
  for (const DocumentValue &item : *found) {
    std::optional<std::int64_t> integer = integerIn(item, range);
    if (!integer)
      mismatch(item, key, expectedOf(item, range));
    read.push_back(integer.value_or(0));
  }
  return read;
}

std::vector<double>
MapReader::numbers(std::string_view key, NumberRange range,
                   std::optional<std::vector<double>> byDefault,
                   std::optional<std::size_t> count) {
  const std::vector<DocumentValue> *found =
      list(key, !byDefault, listOf(count, range.describe()), count);
  if (!found)
    return byDefault.value_or(std::vector<double>(count.value_or(0)));
  std::vector<double> read;
  for (const DocumentValue &item : *found) {
    std::optional<double> number = numberIn(item, range);
    if (!number)
      mismatch(item, key, range.describe());
    read.push_back(number.value_or(0));
  }
  return read;
}

std::vector<std::string>
MapReader::strings(std::string_view key,
                   std::optional<std::vector<std::string>> byDefault) {
  const std::vector<DocumentValue> *found =
      list(key, !byDefault, "a list of strings", std::nullopt);
  if (!found)
    return byDefault.value_or(std::vector<std::string>());
  std::vector<std::string> read;
  for (const DocumentValue &item : *found) {
    if (item.kind != DocumentValue::Kind::String)
      mismatch(item, key, "a string");
    read.push_back(item.text);
  }
  return read;
}

std::optional<MapReader> MapReader::map(std::string_view key) {
  const DocumentValue *found = value(key);
  if (!found || found->isNull())
    return std::nullopt;
  if (!found->isMap()) {
    mismatch(*found, key, "keys and values");
    return std::nullopt;
  }
  return MapReader(sink, *found, pathOf(key));
}

std::optional<MapReader> MapReader::requiredMap(std::string_view key) {
  const DocumentValue *found = lookUp(key, true, "keys and values");
  if (found && found->isNull())
    mismatch(*found, key, "keys and values");
  return map(key);
}

std::vector<MapReader> MapReader::maps(std::string_view key) {
  std::vector<MapReader> readers;
  const DocumentValue *found = value(key);
  if (!found)
    return readers;
  if (!found->isList()) {
    mismatch(*found, key, "a list of maps");
    return readers;
  }
  for (std::size_t i = 0; i < found->items.size(); ++i) {
    std::string item = fmt::format("{}[{}]", key, i);
    if (found->items[i].isMap())
      readers.push_back(MapReader(sink, found->items[i], pathOf(item)));
    else
      mismatch(found->items[i], item, "keys and values");
  }
  return readers;
}

Result<void> MapReader::finish() {
  for (const std::shared_ptr<Level> &each : sink->levels)
    sink->rejectUnknownKeys(*each);
  if (ok())
    return {};
  return Error{sink->worst->message};
}

std::string IntegerRange::describe() const {
  constexpr std::int64_t large = std::int64_t{1} << 53;
  if (min > -large && max < large)
    return min == max ? fmt::format("{}", min)
                      : fmt::format("an integer from {} to {}", min, max);
  if (min > -large)
    return fmt::format("an integer of at least {}", min);
  return max < large ? fmt::format("an integer of at most {}", max)
                     : "an integer";
}

std::string NumberRange::describe() const {
  using Limits = std::numeric_limits<double>;
  std::string low, high;
  if (min != Limits::lowest())
    low = fmt::format("{} {}", minExcluded ? "above" : "of at least", min);
  if (max != Limits::max())
    high = fmt::format("{} {}", maxExcluded ? "below" : "of at most", max);
  if (low.empty() && high.empty())
    return "a finite number";
  return fmt::format("a number {}{}{}", low,
                     low.empty() || high.empty() ? "" : " and ", high);
}

static std::size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      std::size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::optional<std::string>
heddle::nearestName(std::string_view word,
                    const std::vector<std::string> &candidates) {
  std::optional<std::string> nearest;
  if (word.size() > maxWord)
    return nearest;
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string &candidate : candidates) {
    std::size_t distance = editDistance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}
