//===- Memory.h - memory.json (FORMATS 4), and for people -------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_MEMORY_H
#define HEDDLE_TOOLS_MEMORY_H

#include "heddle/Cluster/Cluster.h"
#include "heddle/Plan/Plan.h"
#include "passes/Memory/MemoryReport.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace heddle::tool {

/// Bytes of the arena by class: each byte in the most lasting class of the
/// objects that take it at some time, so that the sum is the arena less holes.
std::map<std::string, int64_t> bytesByClass(const MemoryReport &report);

/// The document of memory.json, a class of ranks per pipeline stage. Without a
/// cluster no capacity is known and `fits` is null.
nlohmann::ordered_json memoryJson(const std::vector<MemoryReport> &reports,
                                  const Plan &plan,
                                  const std::optional<Cluster> &cluster);

/// The stage whose ranks need most.
size_t fullestStage(const std::vector<MemoryReport> &reports);

/// The sentence that says by how much a program does not fit; none where it
/// does.
std::optional<std::string>
describeMisfit(const std::vector<MemoryReport> &reports,
               const Cluster &cluster);

/// "1.5 GiB".
std::string describeBytes(double bytes);

} // namespace heddle::tool

#endif
