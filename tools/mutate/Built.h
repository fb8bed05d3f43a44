//===- Built.h - An rt program as an executable -----------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_MUTATE_BUILT_H
#define HEDDLE_TOOLS_MUTATE_BUILT_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace heddle::mutate {

/// A folder of temporary files, which goes away with this.
class Folder {
public:
  Folder();
  ~Folder();
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  std::string operator/(const std::string &name) const {
    return path + "/" + name;
  }

private:
  std::string path;
};

struct Answer {
  int code = 3;
  std::string text; ///< what it printed, without the last newline
};

/// An emitted program with the main of Driver.cpp, under a name in a folder.
class Built {
public:
  Built(const Folder &folder, std::string name)
      : program(folder / name), tables(program + ".bin"),
        numbers(program + ".numbers"), output(program + ".out") {}

  /// Emits and compiles; a failure is in `message`.
  mlir::LogicalResult build(mlir::ModuleOp module, std::string &message);
  /// Runs `steps` steps; `arguments` as Driver.cpp says.
  Answer run(int steps, const std::vector<std::string> &arguments) const;

private:
  std::string program, tables, numbers, output;
};

} // namespace heddle::mutate

#endif // HEDDLE_TOOLS_MUTATE_BUILT_H
