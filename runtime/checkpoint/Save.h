//===- Save.h - A checkpoint is written and committed ---------------------===//
//
// | who | what | where it can stop |
// | --- | --- | --- |
// | first rank | beginSave: a folder that no reader looks at | nothing there |
// | all ranks | copy what they write; training goes on | left-over folder |
// | each rank | writeRank: its files, flushed, then their names | the same |
// | first rank | commitSave: all reports prove that every element is there |
// |            | once; manifest, COMMIT, flushed | the same |
// |            | the folder gets its name, flushed | committed |
// |            | older ones go | left-over folder |
//
// What each rank writes follows from the tables alone, so ranks tell the first
// one nothing but checksums. Replicas share the writing.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_CHECKPOINT_SAVE_H
#define RUNTIME_CHECKPOINT_SAVE_H

#include "runtime/checkpoint/FileSystem.h"
#include "runtime/checkpoint/Manifest.h"

#include <map>
#include <span>

namespace heddle::checkpoint {

/// An instance of a state that a rank copies for writing: what it stores of it,
/// `bytes` from `offset` on in the copy.
struct SavedItem {
  const runtime::State *state;
  int64_t position; ///< among the instances of the rank's stage
  int64_t offset, bytes;
};

/// A key of a file: one piece of an instance.
struct SavedExtent {
  std::string key, name, role;
  TensorType type;
  std::vector<int64_t> shape; ///< of the whole tensor
  Piece piece;
  int64_t offset; ///< of what the rank stores of it, in the copy
};

struct SavedFile {
  std::string name;
  std::vector<SavedExtent> extents;
};

/// What a rank writes. The second piece of a tensor goes into a second file:
/// readers of other projects know one extent of a name per file.
struct RankPlan {
  int64_t rank = 0;
  std::vector<SavedItem> items;
  int64_t copyBytes = 0;
  std::vector<SavedFile> files;
};

/// A save that all ranks know of.
struct SaveName {
  std::string root, id; ///< id: 32 hexadecimal digits
  int64_t step = 0;

  std::string temporary() const;
  std::string final() const;
};

/// The header of a file that a rank writes, and where its extents lie in it.
std::string headerOf(const SaveName &name, const RankPlan &plan,
                     const SavedFile &file, std::vector<TensorEntry> &entries);

/// The tables must outlive the plan. Gradients are not saved.
Result<RankPlan> planRank(const runtime::Tables &tables, int64_t rank);

std::string newId();

/// The first rank. An error where the folder of the step exists, or the disk
/// has less than `bytes` left.
Result<void> beginSave(FileSystem &files, const SaveName &name, uint64_t bytes);
/// Its checksums: by file the header's, the whole file's, each extent's.
Result<std::vector<int64_t>> writeRank(FileSystem &files, const SaveName &name,
                                       const RankPlan &plan,
                                       std::span<const std::byte> copy);
/// The first rank. `reports`: of every rank, in order, as writeRank gave them;
/// what stands behind those is ignored. `manifest` comes without files and
/// tensors.
Result<void> commitSave(FileSystem &files, const SaveName &name,
                        const runtime::Tables &tables, Manifest manifest,
                        const std::vector<std::vector<int64_t>> &reports);
/// The first rank, where any has failed. What cannot be removed stays for
/// sweep().
void abandonSave(FileSystem &files, const SaveName &name);

/// Writes manifest and COMMIT into the temporary folder and gives it its name.
Result<void> commitFolder(FileSystem &files, const SaveName &name,
                          const Manifest &manifest);

/// Bytes of all ranks together, without headers.
int64_t bytesOfSave(const runtime::Tables &tables);

/// Removes what was being written or removed when a run ended. Only while
/// holding the lock.
Result<void> prepareRoot(FileSystem &files, const std::string &root);
/// Removes all but the newest `keep` of the steps that `isValid`.
Result<void> removeOld(FileSystem &files, const std::string &root, int64_t keep,
                       const std::vector<int64_t> &validSteps);

/// A file of tensors, written from its begin to its end with checksums, under
/// another name until finish(). After an error it is given up: once a flush has
/// failed nobody knows what is on the disk. Each `attempt` is a new file.
class TensorFile {
public:
  static Result<TensorFile> create(FileSystem &files, const std::string &folder,
                                   const std::string &name,
                                   std::string_view header, int attempt = 0);

  /// The next bytes of the data.
  Result<void> write(std::span<const std::byte> bytes);
  /// Checksum of what was written since the last call: an extent's.
  uint32_t takeCrc();
  /// Flushes and gives the file its name. Its folder is not synced.
  Result<FileRecord> finish();

  void giveUp(); ///< removes it, where that can be done

private:
  FileSystem *files = nullptr;
  std::string path, partial;
  std::unique_ptr<OutputFile> file;
  FileRecord record;
  uint32_t extentCrc = 0;
};

} // namespace heddle::checkpoint

#endif
