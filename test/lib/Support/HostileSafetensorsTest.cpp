//===- HostileSafetensorsTest.cpp - Headers made to be misread ------------===//
//
// One line per kind. What is accepted is accepted on purpose: zero elements
// beside any size, names with slashes, which name no file here.
//
//===----------------------------------------------------------------------===//

#include "heddle/Support/Safetensors.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <ctime>

using namespace heddle;
using testing::HasSubstr;

namespace {

std::string sized(uint64_t bytes, const std::string &rest) {
  std::string all;
  for (int i = 0; i < 8; ++i)
    all += char(bytes >> (8 * i) & 0xff);
  return all + rest;
}

/// What is said of a file; "" where it is taken.
std::string verdict(const std::string &file) {
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  const auto size = safetensorsHeaderBytes(bytes, file.size(), "f");
  if (!size)
    return size.message();
  const auto header =
      readSafetensorsHeader({file.data(), *size}, file.size(), "f");
  return header ? "" : header.message();
}

std::string ofHeader(const std::string &header, size_t data = 0) {
  return verdict(sized(header.size(), header + std::string(data, 'x')));
}

/// One tensor of f32 with that shape and those places.
std::string ofEntry(const std::string &shape, const std::string &places,
                    size_t data = 4) {
  return ofHeader(R"({"a":{"dtype":"F32","shape":[)" + shape +
                      R"(],"data_offsets":[)" + places + "]}}",
                  data);
}

TEST(HostileSafetensors, Sizes) {
  for (const size_t bytes : {0, 1, 7})
    EXPECT_THAT(verdict(std::string(bytes, '\0')), HasSubstr("at least 8"));
  EXPECT_NE(verdict(std::string(8, '\0')), "");
  for (const uint64_t bytes :
       {uint64_t(1) << 63, ~uint64_t(0), ~uint64_t(0) - 7, uint64_t(3),
        uint64_t(100'000'001), uint64_t(100'000'000)})
    EXPECT_THAT(verdict(sized(bytes, "{}")), HasSubstr("found a header of"))
        << bytes;
  // The longest that there may be; what it holds is another matter.
  std::string padded = "{}" + std::string(99'999'998, ' ');
  EXPECT_THAT(ofHeader(padded), testing::Not(HasSubstr("found a header of")));
  padded += ' ';
  EXPECT_THAT(ofHeader(padded), HasSubstr("found a header of"));
}

TEST(HostileSafetensors, Text) {
  for (const char *header :
       {"", " ", "[]", "\"a\"", "1", "null", "{", "{}}", "{\"a\":}", "\xff\xfe",
        "{\"\xc0\x80\":1}", "{\"a\\u0000\":1}", "{\"a\\ud800\":1}", "{'a':1}",
        "{\"a\":1,}", "{\"a\n\":1}", "// {}"})
    EXPECT_NE(ofHeader(header), "") << header;
  EXPECT_NE(ofHeader(std::string("{\"a\0\":1}", 8)), "");
  EXPECT_THAT(ofHeader(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":)"
                       R"([0,0]},"a":{"dtype":"F32","shape":[0],)"
                       R"("data_offsets":[0,0]}})"),
              HasSubstr("given twice"));
  EXPECT_THAT(ofHeader(R"({"a":{"dtype":"F32","dtype":"F32","shape":[0],)"
                       R"("data_offsets":[0,0]}})"),
              HasSubstr("given twice"));
  EXPECT_THAT(ofHeader(std::string(10'000, '[')), HasSubstr("levels"));
  std::string maps;
  for (int i = 0; i < 10'000; ++i)
    maps += "{\"a\":";
  EXPECT_THAT(ofHeader(maps), HasSubstr("levels"));
}

TEST(HostileSafetensors, Numbers) {
  EXPECT_EQ(ofEntry("1", "0,4"), "");
  for (const char *number :
       {"1e308", "-1", "1.5", "1.0", "1e0", "9007199254740993",
        "18446744073709551616", "9223372036854775808", "\"1\"", "true", "null",
        "[1]", "0x1", "+1", "01", "1_0", "NaN", "Infinity"}) {
    EXPECT_NE(ofEntry(number, "0,4"), "") << number;
    EXPECT_NE(ofEntry("1", std::string("0,") + number), "") << number;
    EXPECT_NE(ofEntry("1", std::string(number) + ",4"), "") << number;
  }
}

TEST(HostileSafetensors, Shapes) {
  const std::string wraps = "4294967296,4294967296";
  for (const std::string &shape :
       {wraps, "2," + wraps, std::string("9223372036854775807,2"),
        std::string("4611686018427387904"),
        std::string("2147483648,2147483648"), std::string("2"),
        std::string("0")})
    EXPECT_NE(ofEntry(shape, "0,4"), "") << shape;
  // Nothing times anything is nothing, and asks for no bytes.
  EXPECT_EQ(ofEntry(wraps + ",0", "0,0", 0), "");
  EXPECT_EQ(ofEntry("0," + wraps, "0,0", 0), "");
  EXPECT_NE(ofEntry(wraps + ",0", "0,4"), "");
  std::string many = "1";
  for (int i = 0; i < 64; ++i)
    many += ",1";
  EXPECT_THAT(ofEntry(many, "0,4"), HasSubstr("65 dimensions"));
  EXPECT_EQ(ofEntry("", "0,4"), "");
}

TEST(HostileSafetensors, Places) {
  for (const char *places :
       {"4,0", "0,5", "0,3", "1,5", "-4,0", "0,9223372036854775807",
        "9223372036854775803,9223372036854775807", "0", "0,4,4", ""})
    EXPECT_NE(ofEntry("1", places), "") << places;
  const auto two = [](const char *one, const char *other, size_t data) {
    return ofHeader(
        std::string(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)") + one +
            R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + other + "}}",
        data);
  };
  EXPECT_EQ(two("[2,4]", "[0,2]", 4), "");
  EXPECT_THAT(two("[0,2]", "[1,3]", 3), HasSubstr("overlap"));
  EXPECT_THAT(two("[0,2]", "[0,2]", 2), HasSubstr("overlap"));
  EXPECT_THAT(two("[0,2]", "[3,5]", 5), HasSubstr("belong to no tensor"));
  EXPECT_THAT(two("[0,2]", "[2,4]", 5), HasSubstr("found 5 bytes of data"));
  EXPECT_NE(two("[0,2]", "[2,4]", 3), "");
}

TEST(HostileSafetensors, TypesAndNames) {
  for (const char *type : {"f32", "F33", "F32 ", "BF15", "U128"})
    EXPECT_THAT(ofHeader(std::string(R"({"a":{"dtype":")") + type +
                             R"(","shape":[1],"data_offsets":[0,4]}})",
                         4),
                HasSubstr("found dtype"))
        << type;
  const auto named = [](const std::string &name) {
    return ofHeader("{\"" + name +
                    "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,"
                    "0]}}");
  };
  EXPECT_EQ(named("../a/b"), "");
  EXPECT_THAT(named(std::string(1 << 20, 'a')), HasSubstr("name of 1048576"));
  // A line of a log is a line, whatever a file calls its tensors.
  for (const char *name : {"a\\nerror: b", "a\\u001b[2J", "a\\r", "a\\u007f"})
    EXPECT_THAT(named(name), HasSubstr("control character")) << name;
}

/// Time and memory grow with the file alone. HEDDLE_ENTRIES: how many;
/// tools/check-all has a million.
TEST(HostileSafetensors, ManyEntries) {
  const char *set = std::getenv("HEDDLE_ENTRIES");
  const int entries = set ? std::atoi(set) : 100'000;
  std::string header = "{";
  for (int i = 0; i < entries; ++i)
    header += (i ? ",\"" : "\"") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  const clock_t start = clock();
  EXPECT_EQ(ofHeader(header + "}"), "");
  EXPECT_LT(double(clock() - start) / CLOCKS_PER_SEC, 2e-5 * entries);
}

} // namespace
