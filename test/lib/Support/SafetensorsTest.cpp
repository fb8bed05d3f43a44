#include "TemporaryFolder.h"

#include "heddle/Support/Safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

using namespace heddle;
using testing::HasSubstr;

/// Header size, header, data.
static std::string fileOf(const std::string &header, const std::string &data) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i)
    bytes[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

static std::string refusal(const std::string &bytes) {
  test::TemporaryFolder folder;
  Result<SafetensorsFile> file =
      SafetensorsFile::open(folder.write("w.safetensors", bytes));
  EXPECT_FALSE(file) << bytes;
  return file ? "" : file.message();
}

TEST(Safetensors, ReadsAKnownFile) {
  test::TemporaryFolder folder;
  std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("b":{"dtype":"I32","shape":[],"data_offsets":[4,8]},)"
      R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},)"
      R"("empty":{"dtype":"F32","shape":[0,5],"data_offsets":[8,8]}}  )";
  Result<SafetensorsFile> file = SafetensorsFile::open(
      folder.write("w", fileOf(header, std::string("abcd\7\0\0\0", 8))));
  ASSERT_TRUE(file) << file.message();
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[0].name, "a"); // in the order of the bytes
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const TensorEntry *b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, TensorType::I32);
  EXPECT_EQ(b->elements(), 1);
  EXPECT_EQ(file->bytes(*b)[0], std::byte{7});
  EXPECT_EQ(file->find("a")->shape, (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(file->bytes(*file->find("empty")).empty());
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(Safetensors, WritesWhatItReads) {
  test::TemporaryFolder folder;
  std::filesystem::path path = folder.path / "w.safetensors";
  std::vector<TensorEntry> tensors = {
      {"model.\"x\"\\", TensorType::F32, {2, 1}, 0, 0},
      {"y", TensorType::U8, {3}, 0, 0}};
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::create(path, tensors, {{"step", "7"}});
  ASSERT_TRUE(writer);
  std::array<float, 2> x = {1.5f, -2.5f};
  std::string y = "abc";
  auto bytesOf = std::as_bytes(std::span(y));
  ASSERT_TRUE(writer->write("y", bytesOf.subspan(2), 2)); // in pieces
  ASSERT_TRUE(writer->write("y", bytesOf.first(2)));
  EXPECT_THAT(writer->commit().message(), HasSubstr("found 0 bytes"));
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(writer->write(tensors[0].name, std::as_bytes(std::span(x))));
  ASSERT_TRUE(writer->commit());

  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.message();
  EXPECT_EQ(file->metadata().at("step"), "7");
  std::span<const std::byte> read = file->bytes(*file->find(tensors[0].name));
  EXPECT_TRUE(std::equal(read.begin(), read.end(),
                         std::as_bytes(std::span(x)).begin()));
  EXPECT_EQ(file->find("y")->end, 11u);
  EXPECT_EQ((std::filesystem::file_size(path) - 11) % 8, 0u);
}

TEST(Safetensors, KnowsTypes) {
  for (int i = 0; i <= static_cast<int>(TensorType::F64); ++i) {
    TensorType type = static_cast<TensorType>(i);
    EXPECT_EQ(tensorTypeByName(tensorTypeName(type)), type);
  }
  EXPECT_EQ(tensorTypeBytes(TensorType::BF16), 2);
  EXPECT_EQ(tensorTypeBytes(TensorType::F64), 8);
  EXPECT_EQ(tensorTypeByName("F99"), std::nullopt);
}

TEST(Safetensors, RefusesBrokenFrames) {
  EXPECT_THAT(refusal("abc"), HasSubstr("found 3 bytes, expected a safetensors "
                                        "file"));
  EXPECT_THAT(refusal(""), HasSubstr("found 0 bytes"));
  EXPECT_THAT(refusal(std::string(8, '\xff')),
              HasSubstr("found a header of 18446744073709551615 bytes"));
  EXPECT_THAT(refusal(fileOf("{}", "").substr(0, 9)),
              HasSubstr("found a header of 2 bytes, expected at most 1"));
  EXPECT_THAT(refusal(fileOf("", "")), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal(fileOf("[1]", "")),
              HasSubstr("found a list of 1 as header"));
  EXPECT_THAT(refusal(fileOf("{\"a\":", "")), HasSubstr("found the end"));
  EXPECT_THAT(refusal(fileOf("\xff{}", "")), HasSubstr("expected UTF-8 text"));
  EXPECT_THAT(refusal(fileOf("{}", "x")),
              HasSubstr("found 1 bytes of data, expected 0"));
}

TEST(Safetensors, RefusesBrokenEntries) {
  auto entry = [](const std::string &fields, std::size_t data) {
    return refusal(fileOf("{\"a\":" + fields + "}", std::string(data, 'x')));
  };
  EXPECT_THAT(entry(R"({"dtype":"F99","shape":[1],"data_offsets":[0,4]})", 4),
              HasSubstr("tensor 'a': found dtype \"F99\""));
  EXPECT_THAT(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4),
              HasSubstr("found 4 bytes, expected 8 for shape [2] of F32"));
  EXPECT_THAT(entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 4),
              HasSubstr("the file may be cut off"));
  EXPECT_THAT(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", 4),
              HasSubstr("found bytes 4 to 0"));
  EXPECT_THAT(entry(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4),
              HasSubstr("key 'a.shape': found -1"));
  EXPECT_THAT(entry(R"({"dtype":"F32","shape":[4294967296,4294967296],)"
                    R"("data_offsets":[0,0]})",
                    0),
              HasSubstr("expected more than 2^63"));
  EXPECT_THAT(entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,1e3]})", 4),
              HasSubstr("key 'a.data_offsets': found 1e3"));
  EXPECT_THAT(entry(R"({"dtype":"F32","shape":[1]})", 4),
              HasSubstr("key 'a.data_offsets' is missing"));
  EXPECT_THAT(
      entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})", 4),
      HasSubstr("unknown key 'a.x'"));
  EXPECT_THAT(entry("5", 4), HasSubstr("found 5, expected keys and values"));
}

TEST(Safetensors, RefusesBytesThatAreSharedOrLeft) {
  auto two = [](const std::string &first, const std::string &second) {
    std::string rest = R"("dtype":"U8","shape":[4],"data_offsets":)";
    return refusal(
        fileOf("{\"a\":{" + rest + first + "},\"b\":{" + rest + second + "}}",
               std::string(10, 'x')));
  };
  EXPECT_THAT(two("[0,4]", "[2,6]"),
              HasSubstr("tensors 'a' and 'b' overlap at byte 2"));
  EXPECT_THAT(two("[0,4]", "[6,10]"),
              HasSubstr("bytes 4 to 6 belong to no tensor"));
  EXPECT_THAT(refusal(fileOf(R"({"a":{"dtype":"U8","shape":[0],)"
                             R"("data_offsets":[0,0]},"a":{"dtype":"U8",)"
                             R"("shape":[0],"data_offsets":[0,0]}})",
                             "")),
              HasSubstr("key 'a' is given twice"));
  EXPECT_THAT(refusal(fileOf(R"({"__metadata__":{"a":1}})", "")),
              HasSubstr("key '__metadata__.a': found 1, expected a string"));
}
