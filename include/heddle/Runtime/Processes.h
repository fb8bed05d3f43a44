//===- Processes.h - What the system knows of a process ---------*- C++ -*-===//
//
// For ranks that look for each other and for who watches them. Standard library
// only.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_PROCESSES_H
#define HEDDLE_RUNTIME_PROCESSES_H

#include <cstdint>
#include <fstream>
#include <string>

namespace heddle::runtime {

/// 'T': stopped, by a signal or a debugger; 'Z': ended, or there is none; 'R':
/// any other.
inline char stateOfProcess(int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  if (!std::getline(file, line))
    return 'Z';
  const size_t name = line.rfind(')'); // names may hold anything
  const char state = name + 2 < line.size() ? line[name + 2] : 'R';
  if (state == 'Z' || state == 'X')
    return 'Z';
  return state == 'T' || state == 't' ? 'T' : 'R';
}

} // namespace heddle::runtime

#endif
