//===- Dry.h - Records an emitted program -----------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_DRY_H
#define HEDDLE_TOOLS_DRY_H

#include "heddle/Runtime/Tables.h"
#include "tools/heddle/Command.h"

namespace heddle::tool {

/// The tables of an emitted folder that has `program`.
Result<runtime::Tables>
readProgramTables(const std::string &folder,
                  const std::string &program = "train-host");

/// Records one step of representative ranks: every place on the axes other than
/// dp, at both ends of dp (ranks along dp differ in offsets of data only). Each
/// recording checks bounds, lifetimes and order of events; here it is checked
/// that the members of each communicator make the same collectives and receive
/// what they send, and that
/// the memory touched is that of memory.json. Prints the totals of a rank.
int runDry(const std::string &folder, const runtime::Tables &tables, bool json);

} // namespace heddle::tool

#endif
