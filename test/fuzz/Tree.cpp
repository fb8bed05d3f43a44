#include "test/fuzz/Tree.h"

#include "runtime/train/Cbor.h"

#include <fmt/format.h>

#include <utility>

namespace heddle::fuzz {

namespace {

using Kind = DocumentValue::Kind;

void collect(DocumentValue &value, std::vector<DocumentValue *> &to) {
  to.push_back(&value);
  for (DocumentValue &item : value.items)
    collect(item, to);
  for (DocumentValue::Entry &entry : value.entries)
    collect(entry.value, to);
}

/// Numbers at the edges of what readers can take.
constexpr const char *kNumbers[] = {"0",
                                    "-1",
                                    "1",
                                    "2",
                                    "3",
                                    "64",
                                    "255",
                                    "65536",
                                    "2147483647",
                                    "2147483648",
                                    "4294967296",
                                    "9007199254740991",
                                    "9007199254740993",
                                    "1152921504606846976",
                                    "9223372036854775807",
                                    "-9223372036854775808",
                                    "9223372036854775808",
                                    "18446744073709551616",
                                    "1e308",
                                    "1e-308",
                                    "-0.0",
                                    "0.5",
                                    "1e400"};

constexpr const char *kTexts[] = {"",
                                  "0",
                                  "a",
                                  "*",
                                  "..",
                                  "/",
                                  "F32",
                                  "BF16",
                                  "param",
                                  "model/rank-00000.safetensors",
                                  "../../etc/passwd",
                                  "new\nline",
                                  "\x1b[31m",
                                  "\xc2\x9b",
                                  "0x1p+1023",
                                  "nan",
                                  "tp",
                                  "dp",
                                  "{}"};

/// A name that readers know, or a text at the edge of what they take.
std::string text(Random &random) {
  if (!words().empty() && random() % 4)
    return words()[random() % words().size()];
  return kTexts[random() % std::size(kTexts)];
}

DocumentValue number(const std::string &text) {
  Result<DocumentValue> value = parseJson(text, "");
  expect(bool(value), "a number is JSON", text);
  return std::move(*value);
}

DocumentValue scalar(Random &random) {
  DocumentValue value;
  switch (random() % 6) {
  case 0:
    return value;
  case 1:
    value.kind = Kind::Bool;
    value.boolean = random() % 2 != 0;
    return value;
  case 2:
    value.kind = Kind::String;
    value.text = text(random);
    return value;
  case 3:
    value.kind = random() % 2 ? Kind::List : Kind::Map;
    return value;
  default:
    return number(random() % 4 ? kNumbers[random() % std::size(kNumbers)]
                               : fmt::format("{}", random() % 4096));
  }
}

/// A number near to what stands there, or twice as much.
void changeNumber(DocumentValue &value, Random &random) {
  if (!value.integer)
    return void(value = scalar(random));
  const auto number = uint64_t(*value.integer);
  const uint64_t changed[] = {number + 1, number - 1, number * 2,
                              number / 2, number + 8, uint64_t(0) - number};
  value.integer = int64_t(changed[random() % std::size(changed)]);
  value.text = fmt::format("{}", *value.integer);
}

template <class T>
void changeList(std::vector<T> &items, Random &random) {
  const size_t at = random() % items.size(), other = random() % items.size();
  switch (random() % 3) {
  case 0:
    items.erase(items.begin() + long(at));
    return;
  case 1:
    items.insert(items.begin() + long(other), T(items[at]));
    return;
  default:
    std::swap(items[at], items[other]);
  }
}

void changeKey(DocumentValue &map, Random &random) {
  const size_t at = random() % map.entries.size();
  map.entries[at].key = random() % 2
                            ? text(random)
                            : map.entries[random() % map.entries.size()].key;
}

size_t sizeOf(const DocumentValue &value) {
  size_t size = 1;
  for (const DocumentValue &item : value.items)
    size += sizeOf(item);
  for (const DocumentValue::Entry &entry : value.entries)
    size += sizeOf(entry.value);
  return size;
}

constexpr size_t kMostCopied = 200;

/// A part of this document or, as often, of one that was changed before.
DocumentValue partOf(const std::vector<DocumentValue *> &all, Random &random) {
  static std::vector<DocumentValue> earlier;
  const DocumentValue &own = *all[random() % all.size()];
  if (sizeOf(own) > kMostCopied)
    return scalar(random);
  if (earlier.size() < 256)
    earlier.push_back(own);
  DocumentValue &kept = earlier[random() % earlier.size()];
  if (random() % 16 == 0)
    kept = own;
  return random() % 2 ? own : kept;
}

void addEntry(DocumentValue &map, DocumentValue value, Random &random) {
  DocumentValue::Entry entry;
  entry.key = text(random);
  entry.value = random() % 2 ? std::move(value) : scalar(random);
  map.entries.push_back(std::move(entry));
}

void changeOne(DocumentValue &root, Random &random) {
  std::vector<DocumentValue *> all;
  collect(root, all);
  DocumentValue &value = *all[random() % all.size()];
  const unsigned choice = random() % 9;
  if (choice == 0)
    value = scalar(random);
  else if (choice == 1)
    value = partOf(all, random);
  else if (choice == 8 && value.kind == Kind::Map)
    addEntry(value, partOf(all, random), random);
  else if (value.kind == Kind::Number)
    changeNumber(value, random);
  else if (!value.items.empty())
    changeList(value.items, random);
  else if (!value.entries.empty() && choice == 2)
    changeKey(value, random);
  else if (!value.entries.empty() && choice < 5)
    changeList(value.entries, random);
  else if (value.entries.empty())
    value = scalar(random);
}

void writeJson(const DocumentValue &value, std::string &to) {
  const char *between = "";
  switch (value.kind) {
  case Kind::Null:
    to += "null";
    return;
  case Kind::Bool:
    to += value.boolean ? "true" : "false";
    return;
  case Kind::Number:
    to += value.text;
    return;
  case Kind::String:
    to += jsonString(value.text);
    return;
  case Kind::List:
    to += '[';
    for (const DocumentValue &item : value.items) {
      to += std::exchange(between, ",");
      writeJson(item, to);
    }
    to += ']';
    return;
  case Kind::Map:
    to += '{';
    for (const DocumentValue::Entry &entry : value.entries) {
      to += std::exchange(between, ",") + jsonString(entry.key) + ':';
      writeJson(entry.value, to);
    }
    to += '}';
  }
}

/// In lines, as people write YAML.
void writeBlock(const DocumentValue &value, size_t indent, std::string &to) {
  if (value.items.empty() && value.entries.empty())
    return writeJson(value, to);
  const std::string line = "\n" + std::string(indent, ' ');
  for (const DocumentValue &item : value.items) {
    to += line + "- ";
    writeBlock(item, indent + 2, to);
  }
  for (const DocumentValue::Entry &entry : value.entries) {
    to += line + jsonString(entry.key) + ": ";
    writeBlock(entry.value, indent + 2, to);
  }
}

void writeCbor(const DocumentValue &value, std::string &to) {
  using train::CborMajor;
  switch (value.kind) {
  case Kind::Null:
    to += '\xf6';
    return;
  case Kind::Bool:
    return train::appendCbor(to, value.boolean);
  case Kind::Number:
    return value.integer ? train::appendCbor(to, *value.integer)
                         : train::appendCbor(to, value.number);
  case Kind::String:
    return train::appendCbor(to, value.text);
  case Kind::List:
    train::appendCborHead(to, CborMajor::Array, value.items.size());
    for (const DocumentValue &item : value.items)
      writeCbor(item, to);
    return;
  case Kind::Map:
    train::appendCborHead(to, CborMajor::Map, value.entries.size());
    for (const DocumentValue::Entry &entry : value.entries) {
      train::appendCbor(to, entry.key);
      writeCbor(entry.value, to);
    }
  }
}

/// Reads a text, changes its tree, and writes it. An input is mostly changed
/// several times in turn: then the tree of the time before is at hand.
template <class Read, class Write>
const DocumentValue *change(std::string &text, Random &random, Read read,
                            Write write) {
  static std::string last;
  static DocumentValue tree;
  if (text.empty() || text != last) {
    Result<DocumentValue> value = read(text);
    if (!value)
      return nullptr;
    tree = std::move(*value);
  }
  changeTree(tree, random);
  last = text = write(tree);
  return &tree;
}

} // namespace

void changeTree(DocumentValue &root, Random &random) {
  for (unsigned i = 0, count = 1 + random() % 4; i < count; ++i)
    changeOne(root, random);
}

std::string jsonOf(const DocumentValue &value) {
  std::string text;
  writeJson(value, text);
  return text;
}

std::string cborOf(const DocumentValue &value) {
  std::string bytes;
  writeCbor(value, bytes);
  return bytes;
}

const DocumentValue *changeJson(std::string &text, Random &random) {
  return change(
      text, random, [](std::string_view in) { return parseJson(in, ""); },
      jsonOf);
}

bool mutateJson(std::string &text, Random &random) {
  return changeJson(text, random) != nullptr;
}

bool mutateYaml(std::string &text, Random &random) {
  const auto read = [](std::string_view in) -> Result<DocumentValue> {
    Result<Document> document = Document::parse(in, "", Document::Syntax::Yaml);
    if (!document)
      return document.error();
    return document->root();
  };
  const auto write = [&](const DocumentValue &tree) {
    std::string out;
    if (random() % 4 == 0)
      writeBlock(tree, 0, out);
    else
      writeJson(tree, out);
    return out;
  };
  return change(text, random, read, write) != nullptr;
}

bool mutateCbor(std::string &bytes, Random &random) {
  return change(bytes, random, train::decodeCbor, cborOf) != nullptr;
}

} // namespace heddle::fuzz
