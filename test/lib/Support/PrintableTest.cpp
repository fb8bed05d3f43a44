#include "heddle/Support/Printable.h"

#include <gtest/gtest.h>

using namespace heddle;

TEST(Printable, LeavesTextAsItIs) {
  for (const char *text : {"", "plain", "\xc3\xa9\xf0\x9f\x98\x80 'x'\\"}) {
    EXPECT_TRUE(isPrintable(text)) << text;
    EXPECT_EQ(printable(text), text);
  }
}

// A line break would begin a line of a log, an escape could rule a terminal;
// U+009B does what an escape with a bracket does.
TEST(Printable, WritesOutWhatIsNone) {
  const std::pair<std::string, std::string> cases[] = {
      {"a\nerror: b", "a\\nerror: b"},
      {"\x1b[2J", "\\x1b[2J"},
      {"a\r\t\x7f", "a\\x0d\\x09\\x7f"},
      {std::string("\0", 1), "\\x00"},
      {"\xc2\x9b"
       "1m",
       "\\xc2\\x9b1m"},
      {"\xff\xc0\x80", "\\xff\\xc0\\x80"},
      {"cut \xe2\x82", "cut \\xe2\\x82"}};
  for (const auto &[text, shown] : cases) {
    EXPECT_FALSE(isPrintable(text)) << shown;
    EXPECT_EQ(printable(text), shown);
    EXPECT_TRUE(isPrintable(printable(text)));
  }
}
