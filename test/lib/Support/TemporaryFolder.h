//===- TemporaryFolder.h - A folder that is gone after the test -*- C++ -*-===//

#ifndef HEDDLE_TEST_LIB_SUPPORT_TEMPORARYFOLDER_H
#define HEDDLE_TEST_LIB_SUPPORT_TEMPORARYFOLDER_H

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <stdlib.h>

namespace heddle::test {

class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "heddle-test-XXXXXX")
            .string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }

  /// Writes a file and gives its path.
  std::filesystem::path write(const std::string &name,
                              const std::string &bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }
  std::size_t files() const {
    std::size_t count = 0;
    for ([[maybe_unused]] auto &file :
         std::filesystem::directory_iterator(path))
      ++count;
    return count;
  }

  std::filesystem::path path;
};

} // namespace heddle::test

#endif
