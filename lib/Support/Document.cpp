#include "heddle/Support/Document.h"

#include "Scalars.h"
#include "Yaml.h"

#include "heddle/Support/Files.h"

using namespace heddle;

Result<Document> Document::read(const std::filesystem::path &path) {
  Result<std::string> text = readFile(path, std::uint64_t{64} << 20);
  if (!text)
    return text.error();
  return parse(*text, path.string(),
               path.extension() == ".json" ? Syntax::Json : Syntax::Yaml);
}

Result<Document> Document::parse(std::string_view text, std::string file,
                                 Syntax syntax) {
  Document document;
  document.name = std::move(file);
  Result<std::string_view> checked = detail::checkText(text, document.name);
  if (!checked)
    return checked.error();
  Result<DocumentValue> tree = syntax == Syntax::Json
                                   ? parseJson(*checked, document.name)
                                   : detail::parseYaml(*checked, document.name);
  if (!tree)
    return tree.error();
  document.tree = std::move(*tree);
  return document;
}
