#include "TemporaryFolder.h"

#include "heddle/Support/Files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

using namespace heddle;
using testing::HasSubstr;

TEST(Files, WritesAndReads) {
  test::TemporaryFolder folder;
  std::string bytes("a\0b\n", 4);
  ASSERT_TRUE(writeFile(folder.path / "f", bytes));
  EXPECT_EQ(*readFile(folder.path / "f"), bytes);
  ASSERT_TRUE(writeFile(folder.path / "f", "")); // replaces
  EXPECT_EQ(*readFile(folder.path / "f"), "");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(Files, RefusesWithTheReason) {
  test::TemporaryFolder folder;
  folder.write("big", "12345");
  std::filesystem::path pipe = folder.path / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(readFile(folder.path / "none").message(),
              HasSubstr("/none: cannot be opened: No such file or directory"));
  EXPECT_THAT(readFile(folder.path).message(),
              HasSubstr("found a directory, expected a file"));
  EXPECT_THAT(readFile(pipe).message(), HasSubstr("no regular file"));
  EXPECT_THAT(readFile(folder.path / "big", 4).message(),
              HasSubstr("found 5 bytes, expected at most 4"));
  EXPECT_THAT(writeFile(folder.path / "no" / "f", "x").message(),
              HasSubstr("cannot be written: No such file or directory"));
  EXPECT_THAT(writeFile(folder.path, "x").message(),
              HasSubstr("found a directory"));
  EXPECT_THAT(MappedFile::open(folder.path / "none").message(),
              HasSubstr("cannot be opened"));
  EXPECT_FALSE(MappedFile::open(folder.path));
}

TEST(AtomicFile, ShowsNothingBeforeCommit) {
  test::TemporaryFolder folder;
  std::filesystem::path path = folder.write("f", "old");
  {
    Result<AtomicFile> file = AtomicFile::create(path);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->append("half"));
    EXPECT_EQ(*readFile(path), "old");
  }
  EXPECT_EQ(*readFile(path), "old");
  EXPECT_EQ(folder.files(), 1u); // the temporary is gone
  Result<AtomicFile> file = AtomicFile::create(path);
  ASSERT_TRUE(file->append("ab"));
  ASSERT_TRUE(file->writeAt(4, "ef"));
  ASSERT_TRUE(file->append("cd"));
  AtomicFile moved = std::move(*file);
  ASSERT_TRUE(moved.commit());
  EXPECT_EQ(*readFile(path), "abcdef");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(MappedFile, ShowsBytes) {
  test::TemporaryFolder folder;
  Result<MappedFile> file = MappedFile::open(folder.write("f", "xyz"));
  ASSERT_TRUE(file);
  MappedFile moved = std::move(*file);
  ASSERT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(moved.bytes()[2], std::byte{'z'});
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_TRUE(MappedFile::open(folder.write("e", ""))->bytes().empty());
}
