//===- SafetensorsFrame.h - Size, header and data of an input ---*- C++ -*-===//

#ifndef HEDDLE_TEST_FUZZ_TARGETS_SAFETENSORSFRAME_H
#define HEDDLE_TEST_FUZZ_TARGETS_SAFETENSORSFRAME_H

#include "test/fuzz/Tree.h"

#include <algorithm>

namespace heddle::fuzz {

/// Where the header's JSON ends: behind its last bracket before the data.
inline size_t headerEnd(std::string_view input) {
  constexpr size_t kMost = 1 << 16;
  const size_t close = input.substr(0, kMost).rfind('}');
  return close == input.npos || close < 8 ? input.size() : close + 1;
}

/// Sets the size field to what the header has.
inline void repairFrame(std::string &input) {
  if (input.size() < 8)
    return;
  const uint64_t bytes = headerEnd(input) - 8;
  for (int i = 0; i < 8; ++i)
    input[size_t(i)] = char(bytes >> (8 * i));
}

/// Changes the header as a tree; data is as long as the last tensor says.
inline bool mutateFrame(std::string &input, Random &random) {
  if (input.size() < 8)
    return false;
  const size_t end = headerEnd(input);
  const std::string data = input.substr(end);
  std::string header = input.substr(8, end - 8);
  const DocumentValue *const tree = changeJson(header, random);
  if (!tree)
    return false;
  uint64_t most = 0;
  for (const DocumentValue::Entry &entry : tree->entries)
    if (const DocumentValue *place = entry.value.find("data_offsets"))
      for (const DocumentValue &item : place->items)
        most = std::max(most, uint64_t(item.integer.value_or(0)));
  input = input.substr(0, 8) + header + data;
  if (most <= 4096 && random() % 4)
    input.resize(8 + header.size() + most);
  return true;
}

/// Of inputs that begin with a byte for the kind of file: 1 of 4 is this one,
/// the others are changed as JSON.
inline bool mutateOfKind(std::string &input, Random &random) {
  if (input.empty())
    return false;
  std::string rest = input.substr(1);
  if (!((input[0] & 3) == 1 ? mutateFrame : mutateJson)(rest, random))
    return false;
  input = input.substr(0, 1) + rest;
  return true;
}

inline void repairOfKind(std::string &input) {
  if (input.empty() || (input[0] & 3) != 1)
    return;
  std::string rest = input.substr(1);
  repairFrame(rest);
  input = input.substr(0, 1) + rest;
}

} // namespace heddle::fuzz

#endif
