#include "heddle/Support/Check.h"
#include "heddle/Support/Result.h"

#include <gtest/gtest.h>

#include <memory>

using namespace heddle;

TEST(CheckDeathTest, EndsWithThreeAndSaysWhere) {
  EXPECT_EXIT(HEDDLE_CHECK(1 + 1 == 3, "sum of {}", 2),
              testing::ExitedWithCode(3),
              "internal error: .*CheckTest.cpp:[0-9]+: 1 \\+ 1 == 3 does not "
              "hold: sum of 2");
}

TEST(Check, CostsNothingWhereItHolds) {
  int calls = 0;
  auto count = [&] { return ++calls; };
  HEDDLE_CHECK(calls == 0, "{}", count());
  EXPECT_EQ(calls, 0); // the message is made only when it is needed
}

TEST(Result, HoldsValueOrError) {
  Result<std::unique_ptr<int>> value(std::make_unique<int>(3));
  ASSERT_TRUE(value);
  EXPECT_EQ(**value, 3);
  Result<std::string> error = Error{"no"}; // although both are made of strings
  ASSERT_FALSE(error);
  EXPECT_EQ(error.message(), "no");
  EXPECT_TRUE(Result<void>());
  EXPECT_FALSE(Result<void>(Error{""}));
}
