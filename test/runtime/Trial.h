//===- Trial.h - Runs the train main with the program of TrainProgram.cpp -===//

#ifndef HEDDLE_TEST_RUNTIME_TRIAL_H
#define HEDDLE_TEST_RUNTIME_TRIAL_H

#include "heddle/Runtime/Train.h"
#include "heddle/Support/Document.h"
#include "test/runtime/TrainProgram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace heddle::test {

/// A folder that goes away with its test.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "heddle-train-XXXXXX")
            .string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return path / name;
  }
};

struct Trial {
  Folder folder;
  std::string errors;

  Trial() { writeTables(bigramTables()); }
  void writeTables(const runtime::Tables &tables) {
    folder.write("tables.bin", runtime::encodeTables(tables));
  }
  int operator()(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), (folder.path / "train").string());
    std::vector<char *> argv;
    for (std::string &argument : arguments)
      argv.push_back(argument.data());
    testing::internal::CaptureStderr();
    const int code = heddle_train_main(int(argv.size()), argv.data());
    errors = testing::internal::GetCapturedStderr();
    return code;
  }
  std::string file(const char *name) const { return folder.path / name; }
  /// The values of a key over the lines of the log; null is NaN.
  std::vector<double> logged(const std::string &key) const {
    std::ifstream log(file("log.jsonl"));
    std::vector<double> values;
    for (std::string line; std::getline(log, line);) {
      const Result<DocumentValue> value = parseJson(line, "log");
      EXPECT_TRUE(value) << line;
      const DocumentValue *found = value->find(key);
      values.push_back(!found || found->isNull() ? NAN
                       : found->kind == DocumentValue::Kind::Bool
                           ? double(found->boolean)
                           : found->number);
    }
    return values;
  }
};

inline const char *const kBatches =
    "{\"tokens\": [[0,1,2,3,4,5],[6,5,4,3,2,1],[1,1,2,2,3,3],[0,6,0,6,0,6],"
    "[2,4,6,1,3,5]]}";

} // namespace heddle::test

#endif
