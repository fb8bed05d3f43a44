#include "test/fuzz/Fuzz.h"

#include "heddle/Support/Printable.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <unistd.h>

namespace heddle::fuzz {

std::vector<Target> &targets() {
  static std::vector<Target> all;
  return all;
}

std::vector<std::string> &words() {
  static std::vector<std::string> all;
  return all;
}

void expect(bool holds, std::string_view promise, std::string_view seen) {
  if (holds)
    return;
  std::fprintf(stderr, "broken promise: %.*s: %.*s\n", int(promise.size()),
               promise.data(), int(seen.size()), seen.data());
  std::abort();
}

void checkMessage(std::string_view message) {
  constexpr size_t kMost = 8192; // a tensor's name may have 4096 bytes
  expect(!message.empty(), "a message says something");
  expect(message.size() <= kMost, "a message is short", message);
  expect(isPrintable(message), "a message is one line of printable text",
         message);
}

namespace {

/// A folder of this process, gone with it.
class Folder {
public:
  Folder() {
    const bool inMemory = std::filesystem::is_directory("/dev/shm");
    std::string name =
        inMemory ? "/dev/shm/heddle-fuzz-XXXXXX" : "/tmp/heddle-fuzz-XXXXXX";
    expect(mkdtemp(name.data()) != nullptr, "a folder can be made", name);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

} // namespace

std::string fileOf(std::string_view bytes, const char *extension) {
  static const Folder folder;
  // One file per extension, kept open: to make one anew takes longer than most
  // readers do.
  static std::map<std::string, int, std::less<>> files;
  const std::string path = folder.path / (std::string("input") + extension);
  auto found = files.find(extension);
  if (found == files.end())
    found = files.emplace(extension, open(path.c_str(), O_CREAT | O_RDWR, 0600))
                .first;
  const int file = found->second;
  expect(file >= 0 && ftruncate(file, off_t(bytes.size())) == 0 &&
             pwrite(file, bytes.data(), bytes.size(), 0) ==
                 ssize_t(bytes.size()),
         "a file can be written", path);
  return path;
}

std::string_view take(std::string_view &input, size_t count) {
  const std::string_view taken = input.substr(0, count);
  input.remove_prefix(taken.size());
  return taken;
}

std::string_view takeLine(std::string_view &input) {
  const size_t end = std::min(input.find('\n'), input.size());
  const std::string_view line = input.substr(0, end);
  input.remove_prefix(std::min(end + 1, input.size()));
  return line;
}

} // namespace heddle::fuzz
