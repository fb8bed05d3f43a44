// In the place of MpiTransport.cpp where there is no MPI to build with.

#include "runtime/ranks/Transport.h"

namespace heddle::ranks {

bool hasMpi() { return false; }

heddle_rt_status joinMpi(std::unique_ptr<Transport> &, bool) {
  return runtime::invalid("an MPI launcher started this program, which was "
                          "built without MPI");
}

} // namespace heddle::ranks
