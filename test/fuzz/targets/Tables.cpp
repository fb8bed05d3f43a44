#include "heddle/Runtime/Tables.h"
#include "runtime/checkpoint/Pieces.h"
#include "runtime/train/Extents.h"
#include "test/fuzz/Tree.h"

using namespace heddle;
using namespace heddle::runtime;

// What stands for a rank is found of any tables that are taken.
static void run(std::string_view input) {
  Tables tables;
  try {
    tables = decodeTables(input);
  } catch (const TablesError &error) {
    return fuzz::checkMessage(error.what());
  }
  const std::string bytes = encodeTables(tables);
  fuzz::expect(encodeTables(decodeTables(bytes)) == bytes, "tables come back");
  for (const int64_t rank : {int64_t(0), tables.ranks() - 1}) {
    const int64_t stage = tables.stageOf(rank);
    for (const State &state : tables.states) {
      const int64_t instances = tables.numInstancesAt(state, stage);
      fuzz::expect(instances > 4096 ||
                       int64_t(tables.instancesAt(state, stage).size()) ==
                           instances,
                   "instances are counted", state.name);
      (void)fuzz::accepted(checkpoint::shareOf(tables, rank, state));
      const train::Extents extents(tables.mesh, rank, state.layout, state.file,
                                   tables.stages.axis);
      fuzz::expect(extents.storedElements() >= 0, "a rank stores no less than "
                                                  "nothing");
      if (extents.runCount() > 0)
        (void)extents.runStart(extents.runCount() - 1);
    }
  }
}

static fuzz::Announce target{{"Tables", run, fuzz::mutateCbor}};
