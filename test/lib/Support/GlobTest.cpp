#include "heddle/Support/Glob.h"

#include <gtest/gtest.h>

using namespace heddle;

static bool matches(const std::string &pattern, const std::string &name) {
  Result<Glob> glob = Glob::parse(pattern);
  EXPECT_TRUE(glob) << pattern;
  return glob && glob->matches(name);
}

TEST(Glob, MatchesParameterNames) {
  std::string q = "model.layers.7.self_attn.q_proj.weight";
  EXPECT_TRUE(matches("model.layers.*.self_attn.[qkvo]_proj.weight", q));
  EXPECT_TRUE(matches("*", q));
  EXPECT_TRUE(matches("*.weight", q));
  EXPECT_TRUE(matches("*q_proj*", q));
  EXPECT_TRUE(matches(q, q));
  EXPECT_FALSE(matches("model.layers.*.mlp.*_proj.weight", q));
  EXPECT_FALSE(matches("q_proj", q));
  EXPECT_FALSE(matches("*.bias", q));
}

TEST(Glob, KnowsEachSign) {
  EXPECT_TRUE(matches("block.n[12]", "block.n1"));
  EXPECT_FALSE(matches("block.n[12]", "block.n3"));
  EXPECT_TRUE(matches("n[1-3]", "n2"));
  EXPECT_FALSE(matches("n[1-3]", "n4"));
  EXPECT_TRUE(matches("n[!12]", "n3"));
  EXPECT_FALSE(matches("n[!12]", "n1"));
  EXPECT_FALSE(matches("n[!12]", "n"));
  EXPECT_TRUE(matches("[]]", "]"));
  EXPECT_TRUE(matches("[a-]", "-"));
  EXPECT_TRUE(matches("a?c", "abc"));
  EXPECT_FALSE(matches("a?c", "ac"));
  EXPECT_FALSE(matches("a.c", "abc"));
  EXPECT_TRUE(matches("a*", "a"));
  EXPECT_TRUE(matches("a**b", "ab"));
  EXPECT_TRUE(matches("*a*b*c", "xaybzabc"));
  EXPECT_FALSE(matches("*a*b*c", "xaybzab"));
}

TEST(Glob, LooksAtTheEndFirst) {
  EXPECT_TRUE(matches("*bb", "bb"));
  EXPECT_FALSE(matches("*bb", "b"));
  EXPECT_FALSE(matches("abc", "bc"));
  EXPECT_TRUE(matches("*[ab]c", "xbc"));
  EXPECT_FALSE(matches("*[ab]c", "c"));
  EXPECT_TRUE(matches("*[]]c", "]c"));
  EXPECT_TRUE(matches("x]", "x]"));
  EXPECT_FALSE(Glob::isMatch("a[bc", "ab"));
}

TEST(Glob, TakesNoLongOnHardPatterns) {
  std::string pattern;
  for (int i = 0; i < 40; ++i)
    pattern += "*a";
  EXPECT_FALSE(matches(pattern + "b", std::string(2000, 'a')));
}

TEST(Glob, RefusesBrokenPatterns) {
  EXPECT_EQ(Glob::parse("a[bc").message(), "pattern 'a[bc': found '[' at "
                                           "character 2, expected a ']' after "
                                           "it");
  EXPECT_EQ(Glob::parse("[9-0]").message(),
            "pattern '[9-0]': found the range '9-0', expected rising ends");
  EXPECT_FALSE(Glob::parse(""));
  EXPECT_FALSE(Glob::parse("[]"));
}
