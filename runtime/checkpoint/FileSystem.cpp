#include "runtime/checkpoint/FileSystem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace heddle::checkpoint {

namespace {

Error failure(const std::string &path, const char *what) {
  return {fmt::format("{}: cannot be {}: {}", path, what,
                      std::generic_category().message(errno))};
}

/// Closes on every way out.
class Descriptor {
public:
  explicit Descriptor(int number) : number(number) {}
  ~Descriptor() {
    if (number >= 0)
      ::close(number);
  }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  int get() const { return number; }
  int release() { return std::exchange(number, -1); }

private:
  int number;
};

class RealOutput final : public OutputFile {
public:
  RealOutput(std::string path, int number)
      : path(std::move(path)), file(number) {}

  Result<void> write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR)
        continue;
      if (put < 0)
        return failure(path, "written");
      bytes = bytes.subspan(size_t(put));
    }
    return {};
  }
  Result<void> sync() override {
    if (::fsync(file.get()) != 0)
      return failure(path, "flushed to the disk");
    return {};
  }
  Result<void> close() override {
    if (::close(file.release()) != 0)
      return failure(path, "closed");
    return {};
  }

private:
  std::string path;
  Descriptor file;
};

class RealInput final : public InputFile {
public:
  RealInput(std::string path, int number, uint64_t bytes)
      : path(std::move(path)), file(number), bytes(bytes) {}

  uint64_t size() const override { return bytes; }
  Result<void> read(uint64_t offset, std::span<std::byte> to) const override {
    while (!to.empty()) {
      const ssize_t got =
          ::pread(file.get(), to.data(), to.size(), off_t(offset));
      if (got < 0 && errno == EINTR)
        continue;
      if (got < 0)
        return failure(path, "read");
      if (got == 0)
        return Error{fmt::format("{}: ends at byte {}, expected {} more", path,
                                 offset, to.size())};
      offset += uint64_t(got);
      to = to.subspan(size_t(got));
    }
    return {};
  }

private:
  std::string path;
  Descriptor file;
  uint64_t bytes;
};

class RealLock final : public Lock {
public:
  explicit RealLock(int number) : file(number) {}

private:
  Descriptor file;
};

class RealFiles final : public FileSystem {
public:
  Result<void> makeFolder(const std::string &path) override {
    if (::mkdir(path.c_str(), 0700) != 0)
      return failure(path, "made");
    return {};
  }
  Result<std::unique_ptr<OutputFile>> create(const std::string &path) override {
    const int number =
        ::open(path.c_str(),
               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (number < 0)
      return failure(path, "made");
    return std::unique_ptr<OutputFile>(new RealOutput(path, number));
  }
  Result<void> rename(const std::string &from, const std::string &to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(),
                    RENAME_NOREPLACE) == 0)
      return {};
    if (errno != EINVAL && errno != ENOSYS)
      return failure(from, fmt::format("renamed to {}", to).c_str());
    // A file system that knows no such flag.
    struct stat ignored;
    if (::lstat(to.c_str(), &ignored) == 0) {
      errno = EEXIST;
      return failure(from, fmt::format("renamed to {}", to).c_str());
    }
    return replace(from, to);
  }
  Result<void> replace(const std::string &from,
                       const std::string &to) override {
    if (::rename(from.c_str(), to.c_str()) != 0)
      return failure(from, fmt::format("renamed to {}", to).c_str());
    return {};
  }
  Result<void> removeFile(const std::string &path) override {
    if (::unlink(path.c_str()) != 0)
      return failure(path, "removed");
    return {};
  }
  Result<void> removeFolder(const std::string &path) override {
    if (::rmdir(path.c_str()) != 0)
      return failure(path, "removed");
    return {};
  }
  Result<void> syncFolder(const std::string &path) override {
    const Descriptor folder(
        ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0)
      return failure(path, "opened");
    // EINVAL: a file system that has nothing to flush here.
    if (::fsync(folder.get()) != 0 && errno != EINVAL)
      return failure(path, "flushed to the disk");
    return {};
  }
  Result<std::unique_ptr<InputFile>>
  open(const std::string &path) const override {
    // Non-blocking: opening a pipe without a writer would wait for ever.
    Descriptor file(
        ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (file.get() < 0)
      return failure(path, "opened");
    struct stat status;
    if (::fstat(file.get(), &status) != 0)
      return failure(path, "examined");
    if (!S_ISREG(status.st_mode))
      return Error{fmt::format("{}: found no regular file", path)};
    return std::unique_ptr<InputFile>(
        new RealInput(path, file.release(), uint64_t(status.st_size)));
  }
  Result<std::vector<Entry>> list(const std::string &path) const override;
  Result<uint64_t> freeBytes(const std::string &path) const override {
    struct statvfs status;
    if (::statvfs(path.c_str(), &status) != 0)
      return failure(path, "examined");
    return uint64_t(status.f_bavail) * status.f_frsize;
  }
  Result<std::unique_ptr<Lock>> lock(const std::string &path) override {
    Descriptor file(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.get() < 0)
      return failure(path, "opened");
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
      return Error{fmt::format("{}: another process holds it, expected one "
                               "run at a time per folder of checkpoints",
                               path)};
    return std::unique_ptr<Lock>(new RealLock(file.release()));
  }
};

Result<std::vector<Entry>> RealFiles::list(const std::string &path) const {
  std::vector<Entry> entries;
  const std::unique_ptr<DIR, int (*)(DIR *)> folder(::opendir(path.c_str()),
                                                    ::closedir);
  if (!folder && errno == ENOENT)
    return entries;
  if (!folder)
    return failure(path, "listed");
  for (;;) {
    errno = 0;
    const dirent *entry = ::readdir(folder.get());
    if (!entry && errno != 0)
      return failure(path, "listed");
    if (!entry)
      break;
    const std::string name = entry->d_name;
    if (name == "." || name == "..")
      continue;
    struct stat status;
    const bool known = ::fstatat(::dirfd(folder.get()), entry->d_name, &status,
                                 AT_SYMLINK_NOFOLLOW) == 0;
    entries.push_back({name, known && S_ISDIR(status.st_mode)});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry &a, const Entry &b) { return a.name < b.name; });
  return entries;
}

} // namespace

FileSystem &realFileSystem() {
  static RealFiles files;
  return files;
}

Result<std::string> readText(const FileSystem &files, const std::string &path,
                             uint64_t most) {
  Result<std::unique_ptr<InputFile>> file = files.open(path);
  if (!file)
    return file.error();
  if ((*file)->size() > most)
    return Error{fmt::format("{}: found {} bytes, expected at most {}", path,
                             (*file)->size(), most)};
  std::string text((*file)->size(), '\0');
  if (auto done = (*file)->read(0, std::as_writable_bytes(std::span(text)));
      !done)
    return done.error();
  return text;
}

Result<void> writeText(FileSystem &files, const std::string &path,
                       std::string_view text) {
  Result<std::unique_ptr<OutputFile>> file = files.create(path);
  if (!file)
    return file.error();
  if (auto done = (*file)->write(bytesOf(text)); !done)
    return done;
  if (auto done = (*file)->sync(); !done)
    return done;
  return (*file)->close();
}

Result<void> removeTree(FileSystem &files, const std::string &path) {
  Result<std::vector<Entry>> entries = files.list(path);
  if (!entries)
    return entries.error();
  for (const Entry &entry : *entries) {
    const std::string below = path + "/" + entry.name;
    if (auto done =
            entry.isFolder ? removeTree(files, below) : files.removeFile(below);
        !done)
      return done;
  }
  return files.removeFolder(path);
}

} // namespace heddle::checkpoint
