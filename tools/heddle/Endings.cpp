#include "tools/heddle/Endings.h"

#include "heddle/Runtime/Endings.h"
#include "heddle/Support/Files.h"

#include <charconv>

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;

std::optional<Ending> tool::readEnding(const fs::path &path) {
  Result<std::string> text = readFile(path);
  if (!text)
    return std::nullopt;
  size_t line = std::min(text->find('\n'), text->size());
  Ending ending;
  const char *end = text->data() + line;
  auto [at, error] = std::from_chars(text->data(), end, ending.code);
  if (error != std::errc() || at != end)
    return std::nullopt;
  ending.untold = text->substr(std::min(line + 1, text->size()));
  return ending;
}

std::optional<Ending> tool::readEndings(const fs::path &folder, int64_t ranks) {
  std::optional<Ending> failed;
  bool allLeftOne = true;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    std::optional<Ending> ending =
        readEnding(folder / runtime::endingName(rank));
    allLeftOne &= ending.has_value();
    if (!ending || ending->code == 0)
      continue;
    // The lowest code: the highest is of those who only lost their peers.
    // One message is enough, and none is left where somebody has told his.
    if (!failed)
      failed = ending;
    else if (ending->untold.empty())
      failed->untold.clear();
    failed->code = std::min(failed->code, ending->code);
  }
  if (failed || !allLeftOne)
    return failed;
  return Ending{};
}
