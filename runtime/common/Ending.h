//===- Ending.h - How this rank ended, for who started it -----------------===//

#ifndef RUNTIME_COMMON_ENDING_H
#define RUNTIME_COMMON_ENDING_H

#include <string>

namespace heddle::runtime {

/// Leaves how this rank ends where Endings.h says; nothing where nobody asked.
/// `untold` is a message that went nowhere yet. To be called last, for a
/// launcher may end all ranks as soon as one has failed.
void recordEnding(int code, const std::string &untold = "");

} // namespace heddle::runtime

#endif
