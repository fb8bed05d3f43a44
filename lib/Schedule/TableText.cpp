#include "heddle/Schedule/Table.h"

#include "heddle/Support/Printable.h"

#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace heddle {

namespace {

constexpr std::string_view letters = "FBWDO";

/// How many slots from `index` on make one `F0..7`.
std::size_t lengthOfRun(const std::vector<Slot> &row, std::size_t index) {
  const Slot first = row[index];
  if (first.kind() == SlotKind::Optimizer || first.joined())
    return 1;
  std::size_t length = 1;
  while (index + length < row.size()) {
    const Slot next = row[index + length];
    if (next.joined() || next.kind() != first.kind() ||
        next.chunk() != first.chunk() ||
        next.microBatch() !=
            first.microBatch() + static_cast<std::int64_t>(length))
      break;
    ++length;
  }
  return length;
}

std::string writeRow(const std::vector<Slot> &row) {
  std::string text;
  for (std::size_t i = 0; i < row.size();) {
    if (i)
      text += row[i - 1].joined() ? "+" : " ";
    const bool isSecondOfPair = i && row[i - 1].joined();
    const std::size_t length = isSecondOfPair ? 1 : lengthOfRun(row, i);
    // Two are as short as they are, and read better.
    if (length < 3) {
      text += slotText(row[i++]);
      continue;
    }
    text += fmt::format("{}{}..{}", letterOf(row[i].kind()),
                        row[i].microBatch(), row[i + length - 1].microBatch());
    if (row[i].chunk())
      text += fmt::format("/{}", row[i].chunk());
    i += length;
  }
  return text;
}

std::string writePlaces(const Placement &placement, std::int64_t rank) {
  std::string text = "@";
  for (std::int64_t chunk = 0; chunk < placement.chunks(); ++chunk) {
    const StageAt at = placement.at(rank, chunk);
    text += fmt::format("{}{}{}", chunk ? "," : "", at.stage,
                        std::string(static_cast<std::size_t>(at.path), '\''));
  }
  return text;
}

/// Reads the rows of one table; the first thing that is wrong ends it.
class RowReader {
public:
  RowReader(std::int64_t chunks, std::int64_t microBatches)
      : chunks(chunks), microBatches(microBatches) {}

  Result<void> readRow(std::int64_t rank, std::string_view text);

  std::vector<std::vector<Slot>> rows;
  /// Empty, or one entry per row that began with places.
  std::vector<std::vector<StageAt>> places;

private:
  Result<void> readPlaces();
  Result<void> readToken(std::vector<Slot> &row);
  Result<void> readSlots(std::string_view text, bool mayBeRun,
                         std::vector<Slot> &row);
  Result<void> addRun(SlotKind kind, std::int64_t chunk, std::int64_t first,
                      std::int64_t last, std::vector<Slot> &row);

  template <typename... Arguments>
  Error refuse(fmt::format_string<Arguments...> text,
               Arguments &&...arguments) const {
    // A hostile token may be long.
    const std::string shown = token.size() <= 40
                                  ? std::string(token)
                                  : std::string(token.substr(0, 40)) + "...";
    return Error{printable(fmt::format(
        "schedule: row {}, token {} \"{}\": {}", rank, number, shown,
        fmt::format(text, std::forward<Arguments>(arguments)...)))};
  }

  const std::int64_t chunks, microBatches;
  std::int64_t rank = 0;
  std::string_view token;  ///< the one being read
  std::int64_t number = 0; ///< of the token within its row
  std::int64_t slots = 0;
};

/// Takes a number off the front of `text`.
std::optional<std::int64_t> takeNumber(std::string_view &text) {
  std::int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0)
    return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool takePrefix(std::string_view &text, std::string_view prefix) {
  if (!text.starts_with(prefix))
    return false;
  text.remove_prefix(prefix.size());
  return true;
}

Result<void> RowReader::readRow(std::int64_t rankOfRow, std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  rank = rankOfRow;
  number = 0;
  rows.emplace_back();
  for (std::size_t begin = text.find_first_not_of(blanks);
       begin != text.npos;) {
    const std::size_t end =
        std::min(text.find_first_of(blanks, begin), text.size());
    token = text.substr(begin, end - begin);
    if (Result<void> done = token[0] == '@' && number == 0
                                ? readPlaces()
                                : readToken(rows.back());
        !done)
      return done.error();
    ++number;
    begin = text.find_first_not_of(blanks, end);
  }
  return {};
}

Result<void> RowReader::readPlaces() {
  std::string_view rest = token.substr(1);
  std::vector<StageAt> stages;
  do {
    const std::optional<std::int64_t> stage = takeNumber(rest);
    if (!stage)
      break;
    std::int64_t path = 0;
    while (takePrefix(rest, "'"))
      ++path;
    stages.push_back({path, *stage});
  } while (takePrefix(rest, ","));
  if (!rest.empty() || static_cast<std::int64_t>(stages.size()) != chunks)
    return refuse("expected the stages of {} chunks, as @0 or @0,7 or @0,3'",
                  chunks);
  places.push_back(std::move(stages));
  return {};
}

Result<void> RowReader::readToken(std::vector<Slot> &row) {
  const std::size_t plus = token.find('+');
  if (plus == token.npos)
    return readSlots(token, /*mayBeRun=*/true, row);
  if (token.find('+', plus + 1) != token.npos)
    return refuse("expected two slots joined by +, found more");
  if (Result<void> done = readSlots(token.substr(0, plus), false, row); !done)
    return done.error();
  row.back() = row.back().withJoined(true);
  return readSlots(token.substr(plus + 1), false, row);
}

Result<void> RowReader::readSlots(std::string_view text, bool mayBeRun,
                                  std::vector<Slot> &row) {
  const std::size_t kind = text.empty() ? letters.npos : letters.find(text[0]);
  if (kind == letters.npos)
    return refuse("expected F, B, W, D or O, then a micro-batch, as F3, "
                  "F0..7 or D1/1");
  if (letters[kind] == 'O') {
    if (text != "O")
      return refuse("expected O alone: a rank updates once");
    return addRun(SlotKind::Optimizer, 0, 0, 0, row);
  }
  std::string_view rest = text.substr(1);
  const std::optional<std::int64_t> first = takeNumber(rest);
  std::optional<std::int64_t> last = first;
  if (takePrefix(rest, ".."))
    last = mayBeRun ? takeNumber(rest) : std::nullopt;
  std::optional<std::int64_t> chunk = 0;
  if (takePrefix(rest, "/"))
    chunk = takeNumber(rest);
  if (!first || !last || !chunk || !rest.empty())
    return refuse("expected {} and a micro-batch, as {}3, {}{}3/1",
                  letters[kind], letters[kind],
                  mayBeRun ? fmt::format("{}0..7 or ", letters[kind]) : "or ",
                  letters[kind]);
  return addRun(static_cast<SlotKind>(kind), *chunk, *first, *last, row);
}

Result<void> RowReader::addRun(SlotKind kind, std::int64_t chunk,
                               std::int64_t first, std::int64_t last,
                               std::vector<Slot> &row) {
  if (chunk >= chunks)
    return refuse("chunk {}, expected 0 to {}", chunk, chunks - 1);
  if (first > last)
    return refuse("a run from {} down to {}, expected one that ascends", first,
                  last);
  if (last >= microBatches)
    return refuse("micro-batch {}, expected 0 to {}", last, microBatches - 1);
  slots += last - first + 1;
  if (slots > ScheduleTable::maxSlots)
    return refuse("more than {} slots in the table", ScheduleTable::maxSlots);
  for (std::int64_t microBatch = first; microBatch <= last; ++microBatch)
    row.emplace_back(kind, chunk, microBatch);
  return {};
}

} // namespace

char letterOf(SlotKind kind) {
  const std::size_t index = static_cast<std::size_t>(kind);
  return index < letters.size() ? letters[index] : '?';
}

std::string slotText(Slot slot) {
  if (slot.kind() == SlotKind::Optimizer)
    return "O";
  return slot.chunk()
             ? fmt::format("{}{}/{}", letterOf(slot.kind()), slot.microBatch(),
                           slot.chunk())
             : fmt::format("{}{}", letterOf(slot.kind()), slot.microBatch());
}

std::vector<std::string> writeRows(const ScheduleTable &table) {
  std::vector<std::string> rows;
  const bool isCyclic = table.placement.isCyclic();
  for (std::size_t rank = 0; rank < table.rows.size(); ++rank) {
    std::string row = writeRow(table.rows[rank]);
    if (!isCyclic)
      row = writePlaces(table.placement, static_cast<std::int64_t>(rank)) +
            " " + row;
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<ScheduleTable> readRows(const std::vector<std::string> &rows,
                               std::int64_t chunks, std::int64_t microBatches) {
  const std::int64_t ranks = static_cast<std::int64_t>(rows.size());
  Result<Placement> placement = Placement::cyclic(ranks, chunks);
  if (!placement)
    return placement.error();
  return readRows(rows, *std::move(placement), microBatches);
}

Result<ScheduleTable> readRows(const std::vector<std::string> &rows,
                               Placement placement, std::int64_t microBatches) {
  if (microBatches < 1 || microBatches > Slot::maxMicroBatches)
    return Error{fmt::format("schedule: {} micro-batches, expected 1 to {}",
                             microBatches, Slot::maxMicroBatches)};
  RowReader reader(placement.chunks(), microBatches);
  for (std::size_t rank = 0; rank < rows.size(); ++rank)
    if (Result<void> done =
            reader.readRow(static_cast<std::int64_t>(rank), rows[rank]);
        !done)
      return done.error();
  if (!reader.places.empty()) {
    if (reader.places.size() != rows.size())
      return Error{fmt::format("schedule: {} of {} rows begin with the stages "
                               "of their chunks (@...), expected all or none",
                               reader.places.size(), rows.size())};
    Result<Placement> told = Placement::of(reader.places);
    if (!told)
      return told.error();
    placement = *std::move(told);
  }
  if (microBatches % placement.numPaths())
    return Error{fmt::format("schedule: {} micro-batches cannot be divided "
                             "among {} paths, expected a multiple",
                             microBatches, placement.numPaths())};
  return ScheduleTable{std::move(placement), microBatches,
                       std::move(reader.rows)};
}

} // namespace heddle
