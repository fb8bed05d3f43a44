//===- Views.h - Ranks for tests of the supervisor ------------------------===//

#ifndef TEST_LIB_SUPERVISOR_VIEWS_H
#define TEST_LIB_SUPERVISOR_VIEWS_H

#include "heddle/Supervisor/View.h"

namespace heddle::supervisor {

/// `n` running ranks in one communicator, dp, each behind the start of a kernel
/// of step 3.
inline std::vector<RankView> makeRanks(int n) {
  std::vector<RankView> views(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    RankView &view = views[size_t(i)];
    view.rank = i;
    view.process = 1000 + i;
    view.state = Process::Running;
    view.section = Section::Step;
    view.step = 3;
    view.sequence = 10;
    view.comms = {{"dp", 1, 0, i, n, 4}};
    view.operations = {{10, 3, "layers.0.norm", -1, 0, -1, 0, ""}};
  }
  return views;
}

/// The rank waits in its communicator's next collective.
inline void waitIn(RankView &view, const std::string &name, int64_t elements,
                   int comm = 0) {
  view.waiting = true;
  ++view.sequence;
  ++view.comms[size_t(comm)].calls;
  view.operations = {{view.sequence, view.step, name, comm,
                      view.comms[size_t(comm)].calls, -1, elements, "f32"}};
}

} // namespace heddle::supervisor

#endif
