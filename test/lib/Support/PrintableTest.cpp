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

// Names of files may have any length, lines of a log may not.
TEST(Printable, LeavesOutTheMiddleOfWhatNobodyReads) {
  const std::string text = std::string(1000, 'a') + "b";
  EXPECT_EQ(printable(std::string(1000, 'a')), std::string(1000, 'a'));
  EXPECT_EQ(printable(text), std::string(500, 'a') + " (1 bytes) " +
                                 std::string(499, 'a') + "b");
  std::string accents;
  while (accents.size() < 3000)
    accents += "\xc3\xa9";
  for (size_t i = 0; i < 4; ++i) {
    const std::string shown = printable(std::string(i, 'a') + accents);
    EXPECT_LT(shown.size(), 1020u);
    EXPECT_EQ(shown.find("\\x"), shown.npos) << "a character is cut";
    EXPECT_TRUE(isPrintable(shown));
  }
}
