#include "heddle/Support/Document.h"

#include <gtest/gtest.h>

using namespace heddle;

namespace {
/// A document and the reader of its root.
struct Reading {
  explicit Reading(const std::string &text)
      : document(*Document::parse(text, "t.yaml", Document::Syntax::Yaml)),
        reader(document) {}
  std::string message() {
    Result<void> done = reader.finish();
    return done ? "" : done.message();
  }
  Document document;
  MapReader reader;
};
} // namespace

TEST(MapReader, ReadsEachType) {
  Reading r("{i: 3, n: 2.5, w: 4, b: true, s: text, c: two, l: [1, 2], "
            "x: [0.5], t: [a, b], z: null}");
  EXPECT_EQ(r.reader.integer("i", {1, 3}), 3);
  EXPECT_EQ(r.reader.number("n", {}), 2.5);
  EXPECT_EQ(r.reader.number("w", {}), 4); // a whole number is a number
  EXPECT_TRUE(r.reader.boolean("b"));
  EXPECT_EQ(r.reader.string("s"), "text");
  EXPECT_EQ(r.reader.choice("c", {"one", "two"}), "two");
  EXPECT_EQ(r.reader.integers("l", {}), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(r.reader.numbers("x", {}), std::vector<double>{0.5});
  EXPECT_EQ(r.reader.strings("t"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.reader.optionalInteger("z", {}), std::nullopt);
  EXPECT_EQ(r.reader.optionalNumber("z", {}), std::nullopt);
  EXPECT_FALSE(r.reader.map("z"));
  EXPECT_EQ(r.message(), "");
}

TEST(MapReader, TakesDefaults) {
  Reading r("{unused: 1}");
  r.reader.know("unused");
  EXPECT_EQ(r.reader.integer("i", {}, 7), 7);
  EXPECT_EQ(r.reader.number("n", {}, 0.5), 0.5);
  EXPECT_TRUE(r.reader.boolean("b", true));
  EXPECT_EQ(r.reader.string("s", "x"), "x");
  EXPECT_EQ(r.reader.choice("c", {"y"}, "y"), "y");
  EXPECT_EQ(r.reader.numbers("l", {}, std::vector<double>{1.0}).size(), 1u);
  EXPECT_EQ(r.reader.optionalInteger("o", {}), std::nullopt);
  EXPECT_TRUE(r.reader.maps("m").empty());
  EXPECT_EQ(r.message(), "");
}

TEST(MapReader, SaysFoundExpectedAndWhere) {
  auto integer = [](const std::string &value) {
    Reading r("\n\nkey: " + value);
    r.reader.integer("key", {1, 8});
    return r.message();
  };
  std::string expected = ", expected an integer from 1 to 8";
  EXPECT_EQ(integer("9"), "t.yaml:3: key 'key': found 9" + expected);
  EXPECT_EQ(integer("0"), "t.yaml:3: key 'key': found 0" + expected);
  EXPECT_EQ(integer("2.0"), "t.yaml:3: key 'key': found 2.0" + expected);
  EXPECT_EQ(integer("'2'"), "t.yaml:3: key 'key': found \"2\"" + expected);
  EXPECT_EQ(integer("[2]"),
            "t.yaml:3: key 'key': found a list of 1" + expected);
  EXPECT_EQ(integer("{a: 2}"), "t.yaml:3: key 'key': found a map" + expected);
  EXPECT_EQ(integer("null"), "t.yaml:3: key 'key': found null" + expected);
  EXPECT_EQ(integer("99999999999999999999"),
            "t.yaml:3: key 'key': found 99999999999999999999" + expected);
}

// A limit that nobody meets is told to who missed it, and to nobody else.
TEST(MapReader, TellsALimitThatWasMissed) {
  auto integer = [](const std::string &value) {
    Reading r("key: " + value);
    r.reader.integer("key", IntegerRange::nonNegative());
    return r.message();
  };
  const std::string key = "t.yaml:1: key 'key': found ";
  EXPECT_EQ(integer("-1"), key + "-1, expected an integer of at least 0");
  for (const char *large :
       {"1000000000000000000", "1e18", "99999999999999999999"})
    EXPECT_EQ(integer(large),
              key + large + ", expected an integer from 0 to 9007199254740992");
  EXPECT_EQ(integer("9007199254740992"), "");
}

TEST(MapReader, RefusesNumbersOutOfRange) {
  auto number = [](const std::string &value, NumberRange range) {
    Reading r("key: " + value);
    r.reader.number("key", range);
    return r.message();
  };
  NumberRange positive = NumberRange::positive(), rate = NumberRange::rate();
  EXPECT_EQ(number("0", positive),
            "t.yaml:1: key 'key': found 0, expected a number above 0");
  EXPECT_EQ(number("1", rate),
            "t.yaml:1: key 'key': found 1, expected a number "
            "of at least 0 and below 1");
  for (const char *value : {".nan", ".inf", "-.inf", "1e999", "true", "abc"})
    EXPECT_NE(number(value, {}), "") << value;
  EXPECT_EQ(number(".nan", {}),
            "t.yaml:1: key 'key': found .nan, expected a finite number");
  EXPECT_EQ(number("0", rate), "");
  EXPECT_EQ(number("1e-300", positive), "");
}

TEST(MapReader, NamesMissingKeys) {
  Reading r("a: 1\nb: {c: 2}");
  r.reader.integer("a", {});
  r.reader.map("b")->integer("c", {});
  r.reader.map("b")->number("lr", NumberRange::positive());
  EXPECT_EQ(r.message(),
            "t.yaml:2: key 'b.lr' is missing; add it (a number above 0)");
}

TEST(MapReader, NamesUnknownKeysWithTheNearest) {
  Reading r("hiden_size: 64\nlayers: two");
  r.reader.integer("hidden_size", {}); // missing, because it is misspelled
  r.reader.integer("layers", {});
  EXPECT_EQ(r.message(),
            "t.yaml:1: unknown key 'hiden_size'; did you mean 'hidden_size'?");
  Reading far("qqq: 64");
  far.reader.integer("hidden_size", {}, 1);
  EXPECT_EQ(far.message(),
            "t.yaml:1: unknown key 'qqq'; known keys: hidden_size");
}

TEST(MapReader, LooksIntoNestedMaps) {
  Reading r("a:\n  b:\n    c: 1\n    d: 2\nl:\n  - {x: 1}\n  - {y: 2}");
  r.reader.map("a")->map("b")->integer("c", {});
  for (MapReader &each : r.reader.maps("l"))
    each.integer("x", {}, 0);
  EXPECT_EQ(r.message(), "t.yaml:4: unknown key 'a.b.d'; did you mean 'c'?");
  Reading list("l: [{x: 1}, 5]");
  list.reader.maps("l")[0].integer("x", {});
  EXPECT_EQ(list.message(),
            "t.yaml:1: key 'l[1]': found 5, expected keys and values");
}

TEST(MapReader, GivesTheFirstOfSeveralErrors) {
  Reading r("b: x\na: y");
  r.reader.integer("a", {});
  r.reader.integer("b", {});
  EXPECT_FALSE(r.reader.ok());
  EXPECT_EQ(r.message(), "t.yaml:1: key 'b': found \"x\", expected an integer");
}

TEST(MapReader, ChecksLists) {
  auto betas = [](const std::string &value) {
    Reading r("betas: " + value);
    r.reader.numbers("betas", NumberRange::rate(), std::nullopt, 2);
    return r.message();
  };
  EXPECT_EQ(betas("[0.9, 0.95]"), "");
  EXPECT_EQ(betas("[0.9]"),
            "t.yaml:1: key 'betas': found a list of 1, expected a list of 2, "
            "each a number of at least 0 and below 1");
  EXPECT_EQ(betas("[0.9, 1.5]"), "t.yaml:1: key 'betas': found 1.5, expected a "
                                 "number of at least 0 and below 1");
  EXPECT_NE(betas("0.9"), "");
}

TEST(MapReader, RefusesWhatIsNoMap) {
  Reading list("- 1\n- 2");
  list.reader.integer("a", {});
  EXPECT_EQ(list.message(),
            "t.yaml:1: found a list of 2, expected keys and values");
  Reading nested("a: 5");
  EXPECT_FALSE(nested.reader.requiredMap("a"));
  EXPECT_EQ(nested.message(),
            "t.yaml:1: key 'a': found 5, expected keys and values");
  Reading absent("b: 5");
  absent.reader.know("b");
  EXPECT_FALSE(absent.reader.requiredMap("a"));
  EXPECT_EQ(absent.message(),
            "t.yaml:1: key 'a' is missing; add it (keys and values)");
}

TEST(MapReader, ChoosesByText) {
  Reading r("mode: synch");
  EXPECT_EQ(r.reader.choice("mode", {"sync", "two_phase"}), "");
  EXPECT_EQ(r.message(), "t.yaml:1: key 'mode': found \"synch\", expected one "
                         "of sync, two_phase");
}

TEST(NearestName, ComesOnlyFromNear) {
  std::vector<std::string> names = {"rope_theta", "rope_scaling", "hidden_act"};
  EXPECT_EQ(nearestName("rope_teta", names), "rope_theta");
  EXPECT_EQ(nearestName("rotary_fraction", names), std::nullopt);
  EXPECT_EQ(nearestName("", names), std::nullopt);
  EXPECT_EQ(nearestName("a", {}), std::nullopt);
}
