//===- Disk.h - A disk in memory that forgets, refuses and fills up -------===//

#ifndef HEDDLE_TEST_RUNTIME_CHECKPOINT_DISK_H
#define HEDDLE_TEST_RUNTIME_CHECKPOINT_DISK_H

#include "runtime/checkpoint/FileSystem.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace heddle::test {

/// One change that was asked for. Inodes are numbered; 0 is the root.
struct Operation {
  enum Kind { Link, Rename, Unlink, Write, Sync, SyncFolder } kind;
  int inode;               ///< the file, or the folder whose names change
  std::string name, other; ///< Rename: from, to; Link: "/" for a folder
  int child = -1;          ///< Link
  std::string bytes;       ///< Write
};

/// What is left of writes that were not flushed.
enum class Unflushed { Lost, Kept, Zero, Torn };

/// A call was to be the last one.
struct Crash {};

class Disk final : public checkpoint::FileSystem {
public:
  Disk() : inodes(1) {}

  /// A disk after a loss of power behind the first `count` operations of a log.
  /// What was flushed is there. Of names that were not, `random` chooses some;
  /// without it all are there (`names`) or none.
  static Disk afterPowerLoss(const std::vector<Operation> &log, size_t count,
                             Unflushed data, bool names, std::mt19937 *random);

  std::vector<Operation> log;
  int64_t calls = 0;                ///< that change something, so far
  std::optional<int64_t> failAt;    ///< this call gives an error
  std::optional<int64_t> crashAt;   ///< this call throws Crash
  std::optional<uint64_t> capacity; ///< bytes of all files together

  /// Every file's path and bytes; tests change them in place.
  std::map<std::string, std::string *> files();

  Result<void> makeFolder(const std::string &path) override;
  Result<std::unique_ptr<checkpoint::OutputFile>>
  create(const std::string &path) override;
  Result<void> rename(const std::string &from, const std::string &to) override;
  Result<void> replace(const std::string &from, const std::string &to) override;
  Result<void> removeFile(const std::string &path) override;
  Result<void> removeFolder(const std::string &path) override;
  Result<void> syncFolder(const std::string &path) override;
  Result<std::unique_ptr<checkpoint::InputFile>>
  open(const std::string &path) const override;
  Result<std::vector<checkpoint::Entry>>
  list(const std::string &path) const override;
  Result<uint64_t> freeBytes(const std::string &path) const override;
  Result<std::unique_ptr<checkpoint::Lock>>
  lock(const std::string &path) override;

private:
  friend class DiskOutput;
  struct Inode {
    bool isFolder = true;
    std::map<std::string, int> entries;
    std::string bytes;
  };
  struct Place {
    int folder;
    std::string name;
    int inode; ///< -1: there is none
  };

  std::optional<Place> find(const std::string &path) const;
  Result<Place> place(const std::string &path, bool exists) const;
  Result<void> count(const std::string &path);
  void apply(const Operation &operation);
  int add(const Place &at, bool isFolder);
  uint64_t used() const;
  void collect(int folder, const std::string &path,
               std::map<std::string, std::string *> &to);

  std::vector<Inode> inodes;
};

} // namespace heddle::test

#endif
