#include "TemporaryFolder.h"

#include "heddle/Support/Document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

using namespace heddle;
using testing::HasSubstr;
using Syntax = Document::Syntax;

static DocumentValue json(const std::string &text) {
  Result<Document> document = Document::parse(text, "t.json", Syntax::Json);
  EXPECT_TRUE(document) << document.message();
  return document ? document->root() : DocumentValue();
}

static DocumentValue yaml(const std::string &text) {
  Result<Document> document = Document::parse(text, "t.yaml", Syntax::Yaml);
  EXPECT_TRUE(document) << document.message();
  return document ? document->root() : DocumentValue();
}

static std::string refusal(const std::string &text, Syntax syntax) {
  Result<Document> document = Document::parse(
      text, syntax == Syntax::Json ? "t.json" : "t.yaml", syntax);
  EXPECT_FALSE(document) << text;
  return document ? "" : document.message();
}

TEST(Json, KeepsTypesAndLines) {
  DocumentValue root =
      json("{\"a\": 1,\n\t\"b\": [true, null,\n 1.5e3, \"x\"]}");
  ASSERT_EQ(root.entries.size(), 2u);
  EXPECT_EQ(root.find("a")->integer, 1);
  EXPECT_EQ(root.entries[1].line, 2);
  const std::vector<DocumentValue> &items = root.find("b")->items;
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[0].kind, DocumentValue::Kind::Bool);
  EXPECT_TRUE(items[1].isNull());
  EXPECT_EQ(items[2].number, 1500);
  EXPECT_FALSE(items[2].integer);
  EXPECT_EQ(items[2].line, 3);
  EXPECT_EQ(items[3].kind, DocumentValue::Kind::String);
}

TEST(Json, ReadsEscapes) {
  EXPECT_EQ(json(R"(["\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00"])")
                .items[0]
                .text,
            "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST(Json, ReadsAByteOrderMarkAndOtherLineEnds) {
  EXPECT_EQ(json("\xef\xbb\xbf{\"a\": 1,\r\n\"b\": 2}").entries[1].line, 2);
}

TEST(Json, RefusesWithLine) {
  auto bad = [](const std::string &text) {
    return refusal(text, Syntax::Json);
  };
  EXPECT_EQ(bad("{\"a\": 1,\n\"b\": }"),
            "t.json:2: found '}', expected a JSON "
            "value (a string needs double quotes)");
  EXPECT_EQ(bad("{\"a\": 1\n\"b\": 2}"),
            "t.json:2: found '\"b', expected ',' or '}'");
  EXPECT_EQ(bad("{\"a\": 1,}"),
            "t.json:1: found '}', expected a key in double quotes");
  EXPECT_EQ(bad("{\"a\": 1,\n\n\"a\": 2}"),
            "t.json:3: key 'a' is given twice, expected once; remove one");
  EXPECT_EQ(bad("{\"a\": NaN}"), "t.json:1: found 'NaN', expected a JSON value "
                                 "(a string needs double quotes)");
  for (const char *text : {"{\"a\": Infinity}",
                           "{\"a\": 01x}",
                           "{\"a\": .5}",
                           "{\"a\": 5.}",
                           "{\"a\": +1}",
                           "{\"a\": -}",
                           "{\"a\": True}",
                           "{\"a\": 0x10}",
                           "{a: 1}",
                           "{\"a\" 1}",
                           "[1 2]",
                           "[1,]",
                           "{} {}",
                           "\"abc",
                           "\"a\\x\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "\"\\u12g4\"",
                           "\"\\u0000\"",
                           "\"a\nb\"",
                           "[",
                           "{\"a\"",
                           "{\"a\":",
                           "nul"})
    EXPECT_THAT(bad(text), HasSubstr("t.json:1: ")) << text;
}

TEST(Json, RefusesDeepNesting) {
  std::string nested = std::string(64, '[') + std::string(64, ']');
  json(nested);
  EXPECT_EQ(refusal(std::string(100000, '['), Syntax::Json),
            "t.json:1: found more than 64 levels of lists and maps, expected "
            "fewer");
}

TEST(Yaml, KeepsTypesAndLines) {
  DocumentValue root = yaml("a: 1            # one\n"
                            "b: {c: -2.5, d: [x, \"3\", '']}\n"
                            "e:\n"
                            "  f: true\n"
                            "g: ~\n"
                            "h:\n");
  EXPECT_EQ(root.find("a")->integer, 1);
  EXPECT_EQ(root.find("b")->find("c")->number, -2.5);
  const std::vector<DocumentValue> &items = root.find("b")->find("d")->items;
  ASSERT_EQ(items.size(), 3u);
  EXPECT_EQ(items[0].kind, DocumentValue::Kind::String);
  EXPECT_EQ(items[1].kind, DocumentValue::Kind::String); // quoted: no number
  EXPECT_EQ(items[2].kind, DocumentValue::Kind::String);
  EXPECT_EQ(root.find("e")->entries[0].line, 4);
  EXPECT_TRUE(root.find("e")->find("f")->boolean);
  EXPECT_TRUE(root.find("g")->isNull());
  EXPECT_TRUE(root.find("h")->isNull());
}

TEST(Yaml, ReadsStringsOfManyLines) {
  EXPECT_EQ(yaml("a: |\n  x\n  y\nb: 1").find("a")->text, "x\ny\n");
  EXPECT_EQ(yaml("a: |\n  x").find("a")->text, "x\n");
  EXPECT_EQ(yaml("a: \"x\n  y\"").find("a")->text, "x y");
  EXPECT_EQ(yaml("a: x\n  y").find("a")->text, "x y");
}

TEST(Yaml, TypesPlainScalarsByTheCoreSchema) {
  auto scalar = [](const std::string &text) {
    return yaml("a: " + text).entries[0].value;
  };
  EXPECT_EQ(scalar("+12").integer, 12);
  EXPECT_EQ(scalar("3.0e-4").number, 3.0e-4);
  EXPECT_EQ(scalar(".5").number, 0.5);
  EXPECT_EQ(scalar("5.").number, 5);
  EXPECT_FALSE(scalar("5.").integer);
  EXPECT_TRUE(std::isinf(scalar("1e999").number));
  EXPECT_EQ(scalar("1e-999").number, 0);
  EXPECT_TRUE(std::isinf(scalar("-.inf").number));
  EXPECT_TRUE(std::isnan(scalar(".nan").number));
  EXPECT_FALSE(scalar("99999999999999999999").integer);
  for (const char *word : {"yes", "no", "on", "1_000", "1.2.3", "e5", "0x10",
                           "--1", "1e", "12 GiB"})
    EXPECT_EQ(scalar(word).kind, DocumentValue::Kind::String) << word;
}

TEST(Yaml, ReadsJson) {
  EXPECT_EQ(yaml("{\"a\": [1, 2.5, \"x\"],\n \"b\": null}").entries[1].line, 2);
}

TEST(Yaml, RefusesWithLine) {
  auto bad = [](const std::string &text) {
    return refusal(text, Syntax::Yaml);
  };
  EXPECT_EQ(bad("a: 1\nb: 2\na: 3\n"),
            "t.yaml:3: key 'a' is given twice, expected once; remove one");
  EXPECT_EQ(bad("a: 1\nb: &x 2\n"), "t.yaml:2: found an anchor ('&'), expected "
                                    "a value; write values out");
  EXPECT_EQ(bad("a: 1\nb: !!str 2\n"),
            "t.yaml:2: found the tag 'tag:yaml.org,2002:str', expected a plain "
            "value");
  EXPECT_EQ(bad("a: 1\n---\nb: 2\n"),
            "t.yaml:3: found a second YAML document, expected one");
  EXPECT_EQ(bad("? [1, 2]\n: 3\n"),
            "t.yaml:1: found a list or map as a key, expected a word");
  EXPECT_THAT(bad("a: *x\n"), HasSubstr("t.yaml:1: "));
  EXPECT_THAT(bad("a: 1\n b: 2\n"), HasSubstr("t.yaml:2: this is not YAML"));
  EXPECT_THAT(bad("a: {b: 1\nc: 2\n"), HasSubstr("this is not YAML"));
  EXPECT_THAT(bad("a: [1, 2\n"), HasSubstr("this is not YAML"));
  EXPECT_THAT(bad("a:\n\t- 1\n"), HasSubstr("this is not YAML"));
  EXPECT_EQ(bad("a: 1\nb: \"x\nc: 2\n"),
            "t.yaml:2: the quoted string that begins here is not closed");
  EXPECT_EQ(bad("a: 'x"),
            "t.yaml:1: the quoted string that begins here is not closed");
  EXPECT_THAT(bad("%\n"), HasSubstr("t.yaml"));
  EXPECT_THAT(bad("~: 1\n\"\": 2\n"), HasSubstr("empty key"));
}

TEST(Yaml, RefusesDeepNesting) {
  yaml("a: " + std::string(60, '[') + std::string(60, ']'));
  for (const char *unit : {"[", "{a: ", "- "}) {
    std::string text;
    for (int i = 0; i < 20000; ++i)
      text += unit;
    EXPECT_THAT(refusal(text, Syntax::Yaml), HasSubstr("t.yaml:1: ")) << unit;
  }
}

TEST(Document, RefusesWhatIsNoText) {
  for (Syntax syntax : {Syntax::Json, Syntax::Yaml}) {
    EXPECT_THAT(refusal("", syntax), HasSubstr("the file is empty"));
    EXPECT_THAT(refusal(" \n\t\n", syntax), HasSubstr("the file is empty"));
    EXPECT_THAT(refusal("{\"a\":\n\"\xff\"}", syntax),
                HasSubstr(":2: found byte 0xff, expected UTF-8 text"));
    EXPECT_THAT(refusal(std::string("{\"a\":\0 1}", 9), syntax),
                HasSubstr("found byte 0x00"));
    for (const char *bytes :
         {"\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
          "\xe2\x82", "\x80", "\xf0\x80\x80\x80", "\xff\xfe{"})
      EXPECT_THAT(refusal(bytes, syntax), HasSubstr("expected UTF-8 text"));
  }
}

TEST(Document, OnlyCommentsAreEmpty) {
  EXPECT_THAT(refusal("# nothing\n", Syntax::Yaml), HasSubstr("t.yaml"));
}

TEST(Document, ReadsByExtension) {
  test::TemporaryFolder folder;
  std::string text = "{\"a\": \"\\ud83d\\ude00\"}"; // which YAML refuses
  EXPECT_TRUE(Document::read(folder.write("a.json", text)));
  EXPECT_FALSE(Document::read(folder.write("a.yaml", text)));
  EXPECT_TRUE(Document::read(folder.write("b.yaml", "{a: 1}")));
  EXPECT_FALSE(Document::read(folder.write("b.json", "{a: 1}")));
  EXPECT_THAT(Document::read(folder.path).message(),
              HasSubstr("found a directory, expected a file"));
  EXPECT_THAT(Document::read(folder.path / "none.yaml").message(),
              HasSubstr("none.yaml: cannot be opened: No such file"));
}
