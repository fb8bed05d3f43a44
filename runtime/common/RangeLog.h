//===- RangeLog.h - Which bytes each piece of work touched ----------------===//
//
// A line of JSON for each piece of work, record and wait of one rank, in
// program order. Whoever reads it needs to know nothing else to say when each
// byte was needed.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_COMMON_RANGELOG_H
#define RUNTIME_COMMON_RANGELOG_H

#include "runtime/common/Trace.h"

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace heddle::runtime {

class RangeLog {
public:
  /// Bytes of an allocation.
  struct Range {
    size_t allocation;
    int64_t begin, bytes;
    bool reads, writes;
  };

  /// Begins a file with the names that numbers in it stand for. False, with
  /// errno, where it cannot be written.
  bool open(const std::string &path, const Trace &trace);
  bool isOpen() const { return file != nullptr; }
  /// False, with errno, where a line could not be written.
  bool close();

  void work(int stream, const char *label, const std::vector<Range> &ranges);
  void record(int stream, int event);
  void wait(int stream, int event);

private:
  std::unique_ptr<std::FILE, int (*)(std::FILE *)> file{nullptr, std::fclose};
};

} // namespace heddle::runtime

#endif
