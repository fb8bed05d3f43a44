#include "tools/heddle/Home.h"
#include "tools/heddle/Report.h"

#include "heddle/Support/Files.h"

#include <cstdlib>
#include <filesystem>

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;

/// Where Debian's package node-d3 has it; HEDDLE_D3 names another file.
static constexpr const char *d3OfDebian = "/usr/share/nodejs/d3/dist/d3.min.js";

static Result<std::string> readLibrary() {
  const char *given = std::getenv("HEDDLE_D3");
  const fs::path path = given ? given : d3OfDebian;
  Result<std::string> text = readFile(path);
  if (!text)
    return Error{fmt::format("the plotting library d3 is not at {}: install "
                             "the package node-d3 (Debian), or name a "
                             "d3.min.js of version 5 in HEDDLE_D3",
                             path.string())};
  return text;
}

/// A JSON text in which no script element can end.
static std::string inScript(std::string text) {
  for (std::size_t at = 0; (at = text.find('<', at)) != text.npos;)
    text.replace(at, 1, "\\u003c");
  return text;
}

/// Replaces the mark {{name}}.
static Result<void> fill(std::string &page, std::string_view name,
                         std::string_view with) {
  const std::string mark = fmt::format("{{{{{}}}}}", name);
  const std::size_t at = page.find(mark);
  if (at == page.npos)
    return Error{fmt::format("page.html has no {}", mark)};
  page.replace(at, mark.size(), with);
  return {};
}

Result<std::string> tool::reportPage(const nlohmann::ordered_json &data) {
  const fs::path folder = fs::path(sourceRoot()) / "tools/heddle/report";
  Result<std::string> library = readLibrary();
  if (!library)
    return library.error();
  std::string scripts;
  for (const char *name :
       {"base.js", "summary.js", "timeline.js", "schedule.js", "memory.js",
        "front.js", "sharding.js", "start.js"}) {
    Result<std::string> script = readFile(folder / name);
    if (!script)
      return script.error();
    scripts += *script;
  }
  Result<std::string> style = readFile(folder / "style.css");
  if (!style)
    return style.error();
  Result<std::string> page = readFile(folder / "page.html");
  if (!page)
    return page.error();
  const std::pair<std::string_view, std::string> parts[] = {
      {"style", *style},
      {"data", inScript(data.dump())},
      {"scripts", scripts},
      {"library", *library}};
  for (const auto &[name, with] : parts)
    if (Result<void> done = fill(*page, name, with); !done)
      return done.error();
  return page;
}
