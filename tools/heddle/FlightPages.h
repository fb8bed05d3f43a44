//===- FlightPages.h - Reads what ranks tell of themselves ------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_FLIGHTPAGES_H
#define HEDDLE_TOOLS_FLIGHTPAGES_H

#include "heddle/Supervisor/View.h"

#include <filesystem>
#include <memory>
#include <vector>

namespace heddle::runtime {
struct FlightPage;
}

namespace heddle::tool {

/// The pages of a host's ranks (heddle/Runtime/Flight.h), how they ended
/// (Endings.h), and what the operating system knows of their processes.
class FlightPages {
public:
  FlightPages(std::filesystem::path folder, int64_t ranks);
  ~FlightPages();
  FlightPages(const FlightPages &) = delete;
  FlightPages &operator=(const FlightPages &) = delete;

  /// All ranks as they are now, each with at most so many last operations.
  std::vector<supervisor::RankView> look(size_t operations);
  /// Sleeps until a rank or `process` ends, or for a time.
  void sleep(pid_t process, int milliseconds) const;
  /// Processes of all ranks that have told of themselves.
  std::vector<pid_t> processes() const;

private:
  struct Rank {
    const runtime::FlightPage *page = nullptr;
    int handle = -1; ///< of its process
    bool gone = false;
  };
  void open(int64_t rank);

  std::filesystem::path folder;
  std::vector<Rank> ranks;
};

/// What a page says; numbers that no page can have are taken as none.
void readPage(const runtime::FlightPage &page, size_t operations,
              supervisor::RankView &view);

} // namespace heddle::tool

#endif
