//===- Checkpoint.h - A committed checkpoint is read ----------------------===//

#ifndef RUNTIME_CHECKPOINT_CHECKPOINT_H
#define RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "runtime/checkpoint/FileSystem.h"
#include "runtime/checkpoint/Manifest.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace heddle::checkpoint {

/// COMMIT and manifest.json were found right; files are not looked at before
/// they are verified or read.
class Checkpoint {
public:
  /// `folder`: .../step-NNNNNNNNNN, or a copy of one under any name.
  static Result<Checkpoint> open(const FileSystem &files, std::string folder);
  /// Files that a manifest describes, which nothing vouches for.
  static Checkpoint of(const FileSystem &files, std::string folder,
                       Manifest manifest);
  Checkpoint(Checkpoint &&) = default;
  Checkpoint &operator=(Checkpoint &&) = default;

  const std::string &folder() const { return path; }
  const Manifest &manifest() const { return contents; }

  /// Reads the whole file and compares sizes, header and all checksums. Names
  /// the tensors that are damaged.
  Result<void> verifyFile(size_t file) const;
  /// Every file; that no other one stands among them.
  Result<void> verify() const;

  /// That its folder still is the one that was opened: what was verified and
  /// what is read are of one checkpoint.
  Result<void> checkSame() const;

  /// Fills `to` with `box`, row-major, of a tensor's state. `box` has to be
  /// inside of it. Checksums are not looked at.
  Result<void> read(const StateRecord &state, const Box &box,
                    std::span<std::byte> to) const;
  /// The same of what one extent has: `part`, inside the extent and inside
  /// `box`.
  Result<void> readPart(const Extent &extent, int64_t width, const Box &part,
                        const Box &box, std::span<std::byte> to) const;

private:
  /// Points into `contents`.
  struct Held {
    const std::string *tensor, *role;
    const StateRecord *state;
    const Extent *extent;
  };

  Checkpoint() = default;
  static std::string nameOf(const Held &held);
  Result<void> checkHeader(size_t file, const InputFile &in) const;

  const FileSystem *files = nullptr;
  std::string path;
  std::string commit; ///< its line; "": nothing vouches for the manifest
  Manifest contents;
  std::vector<std::vector<Held>> byFile; ///< in the order of their bytes
};

/// Steps that have a folder in `root`, newest first.
Result<std::vector<int64_t>> listSteps(const FileSystem &files,
                                       const std::string &root);

using Warn = std::function<void(const std::string &)>;
/// The newest one that `isRight` has nothing against; why others are left out
/// goes to `warn`. None where the folder has no step; an error where it has
/// steps and none is right.
Result<std::optional<Checkpoint>>
findNewest(const FileSystem &files, const std::string &root,
           const std::function<Result<void>(const Checkpoint &)> &isRight,
           const Warn &warn);

} // namespace heddle::checkpoint

#endif
