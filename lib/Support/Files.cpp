#include "heddle/Support/Files.h"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace heddle;

static Error systemError(const std::filesystem::path &path,
                         std::string_view what) {
  return {fmt::format("{}: {}: {}", path.string(), what,
                      std::generic_category().message(errno))};
}

namespace {
/// Closes on every way out.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0)
      ::close(number);
  }
};
} // namespace

/// Opens a regular file for reading; its size in `bytes`.
static Result<int> openRegular(const std::filesystem::path &path,
                               std::uint64_t &bytes) {
  // Non-blocking: opening a pipe without a writer would wait for ever.
  int number = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (number < 0)
    return systemError(path, "cannot be opened");
  struct stat status;
  if (::fstat(number, &status) != 0 || !S_ISREG(status.st_mode)) {
    bool folder = S_ISDIR(status.st_mode);
    ::close(number);
    return Error{fmt::format("{}: found {}, expected a file", path.string(),
                             folder ? "a directory" : "no regular file")};
  }
  bytes = static_cast<std::uint64_t>(status.st_size);
  return number;
}

Result<std::string> heddle::readFile(const std::filesystem::path &path,
                                     std::uint64_t maxBytes) {
  std::uint64_t size = 0;
  Result<int> opened = openRegular(path, size);
  if (!opened)
    return opened.error();
  Descriptor file{*opened};
  if (size > maxBytes)
    return Error{fmt::format("{}: found {} bytes, expected at most {}",
                             path.string(), size, maxBytes)};
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    ssize_t got = ::read(file.number, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return systemError(path, "cannot be read");
    if (got == 0)
      break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path &path) {
  static std::atomic<unsigned> count{0};
  AtomicFile file;
  file.target = path;
  if (std::filesystem::is_directory(path))
    return Error{fmt::format("{}: found a directory, expected a file's name",
                             path.string())};
  file.temporary = path;
  file.temporary += fmt::format(".part-{}-{}", ::getpid(), count++);
  file.descriptor = ::open(file.temporary.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file.descriptor < 0)
    return systemError(path, "cannot be written");
  return file;
}

AtomicFile::AtomicFile(AtomicFile &&other) noexcept
    : target(std::move(other.target)), temporary(std::move(other.temporary)),
      descriptor(std::exchange(other.descriptor, -1)), end(other.end) {}

AtomicFile &AtomicFile::operator=(AtomicFile &&other) noexcept {
  if (this == &other)
    return *this;
  discard();
  target = std::move(other.target);
  temporary = std::move(other.temporary);
  descriptor = std::exchange(other.descriptor, -1);
  end = other.end;
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (descriptor < 0)
    return;
  ::close(std::exchange(descriptor, -1));
  ::unlink(temporary.c_str());
}

Result<void> AtomicFile::writeAt(std::uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t put = ::pwrite(descriptor, bytes.data(), bytes.size(),
                           static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR)
      continue;
    if (put < 0)
      return systemError(target, "cannot be written");
    bytes.remove_prefix(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

Result<void> AtomicFile::append(std::string_view bytes) {
  Result<void> done = writeAt(end, bytes);
  end += bytes.size();
  return done;
}

Result<void> AtomicFile::commit() {
  if (::fsync(descriptor) != 0)
    return systemError(target, "cannot be flushed");
  if (::close(std::exchange(descriptor, -1)) != 0 ||
      ::rename(temporary.c_str(), target.c_str()) != 0) {
    Error error = systemError(target, "cannot be written");
    ::unlink(temporary.c_str());
    return error;
  }
  // The name is durable only once its folder is; a file system that cannot
  // sync folders still has the file.
  std::filesystem::path folder = target.parent_path();
  Descriptor opened{::open(folder.empty() ? "." : folder.c_str(),
                           O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (opened.number >= 0)
    ::fsync(opened.number);
  return {};
}

Result<void> heddle::writeFile(const std::filesystem::path &path,
                               std::string_view bytes) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file)
    return file.error();
  if (auto done = file->append(bytes); !done)
    return done;
  return file->commit();
}

Result<MappedFile> MappedFile::open(const std::filesystem::path &path) {
  std::uint64_t size = 0;
  Result<int> opened = openRegular(path, size);
  if (!opened)
    return opened.error();
  Descriptor file{*opened};
  MappedFile mapped;
  if (size == 0) // which mmap refuses
    return mapped;
  void *address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.number, 0);
  if (address == MAP_FAILED)
    return systemError(path, "cannot be mapped");
  mapped.data = static_cast<const std::byte *>(address);
  mapped.size = size;
  return mapped;
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : data(std::exchange(other.data, nullptr)),
      size(std::exchange(other.size, 0)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(data, other.data);
  std::swap(size, other.size);
  return *this;
}

MappedFile::~MappedFile() {
  if (data)
    ::munmap(const_cast<std::byte *>(data), size);
}
