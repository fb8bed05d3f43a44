//===- Resume.cpp - A run goes on from a checkpoint -----------------------===//

#include "runtime/checkpoint/Reshard.h"
#include "runtime/common/Status.h"
#include "runtime/train/Checkpointer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace heddle::train {

using checkpoint::Checkpoint;
using checkpoint::Manifest;

/// The newest one that is whole. Each rank verifies its share of the files; one
/// bad file anywhere, and all go on to the next older one.
heddle_rt_status Checkpointer::choose(std::optional<Checkpoint> &chosen) {
  const std::string &root = options.checkpoints;
  std::vector<int64_t> steps;
  if (rank.rank == 0)
    if (const auto listed = checkpoint::listSteps(files, root))
      steps = *listed;
  for (size_t i = 0;; ++i) {
    std::vector<int64_t> all;
    HEDDLE_RT_TRY(rank.gather({i < steps.size() ? steps[i] : -1}, all));
    if (all[0] < 0)
      break;
    const std::string folder =
        fmt::format("{}/{}", root, checkpoint::stepFolder(all[0]));
    Result<Checkpoint> found = Checkpoint::open(files, folder);
    Result<void> right = found ? Result<void>() : found.error();
    if (found)
      for (auto f = size_t(rank.rank);
           right && f < found->manifest().files.size(); f += size_t(rank.size))
        right = found->verifyFile(f);
    const int64_t step = all[0];
    HEDDLE_RT_TRY(rank.gather({right ? 0 : 1}, all));
    const auto bad = std::find(all.begin(), all.end(), 1);
    if (bad == all.end()) {
      chosen = std::move(*found);
      return HEDDLE_RT_OK;
    }
    std::string why = right.message();
    HEDDLE_RT_TRY(rank.shareText(bad - all.begin(), why));
    if (rank.rank == 0)
      note(fmt::format("warning: the checkpoint of step {} is left out: {}",
                       step, why));
  }
  common = true;
  return runtime::invalid("{}: none of the checkpoints there is whole; nothing "
                          "was started",
                          root);
}

/// That steps of this program come behind those of the checkpoint.
heddle_rt_status Checkpointer::checkProgress(const Manifest &manifest) {
  const runtime::Tables &t = rank.tables;
  const checkpoint::Progress &p = manifest.progress;
  const auto same = [&](const char *what, int64_t found, int64_t expected) {
    common = true;
    return found == expected
               ? HEDDLE_RT_OK
               : runtime::invalid("the checkpoint of step {} has {} {}, the "
                                  "program {}; compile the program with the "
                                  "same, or begin anew",
                                  manifest.step, what, found, expected);
  };
  if (manifest.step > 0) {
    HEDDLE_RT_TRY(same("seed", p.seed, t.seed));
    HEDDLE_RT_TRY(same("global_batch", p.globalBatch, t.globalBatch));
    HEDDLE_RT_TRY(same("sequence_length", p.sequenceLength, t.sequenceLength));
  }
  common = false;
  if (rank.rank != 0 || manifest.step == 0)
    return HEDDLE_RT_OK;
  const runtime::Schedule &s = p.schedule;
  const runtime::Optimizer &o = p.optimizer;
  if (s.type != t.schedule.type || s.warmupSteps != t.schedule.warmupSteps ||
      s.steps != t.schedule.steps || s.finalLr != t.schedule.finalLr ||
      o.learningRate != t.optimizer.learningRate)
    note("warning: the program has another learning rate or schedule than the "
         "checkpoint; its own counts from here on");
  if (o.type != t.optimizer.type || o.betas != t.optimizer.betas ||
      o.eps != t.optimizer.eps || o.weightDecay != t.optimizer.weightDecay ||
      o.clipNorm != t.optimizer.clipNorm)
    note("warning: the program has other settings of the optimizer than the "
         "checkpoint; its own count from here on");
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(options.data, ignored);
  if (!ignored && p.dataBytes != 0 && int64_t(bytes) != p.dataBytes)
    note(fmt::format("warning: {} has {} bytes, at the checkpoint the data had "
                     "{}: samples are not those of one run",
                     options.data, bytes, p.dataBytes));
  return HEDDLE_RT_OK;
}

/// Takes what the checkpoint has of `found`, and says where it has none.
void Checkpointer::goOn(const Manifest &manifest,
                        checkpoint::Carried &found) const {
  const checkpoint::Carried &saved = manifest.progress.carried;
  if (manifest.step > 0 && found.scaling && !saved.scaling && rank.rank == 0)
    note(fmt::format("warning: the program scales its loss, the run of the "
                     "checkpoint did not: the scale begins at {:g}",
                     found.scaling->scale));
  const auto isMissing = [&](const runtime::State &state) {
    return state.kind == checkpoint::kScalingKind &&
           !manifest.tensors.contains(state.instanceName(0));
  };
  if (manifest.step > 0 && rank.rank == 0 &&
      std::any_of(rank.tables.states.begin(), rank.tables.states.end(),
                  isMissing))
    note("warning: the program makes scales of earlier steps, of which the "
         "checkpoint knows nothing: they begin at 1");
  found.skippedSteps = saved.skippedSteps;
  if (found.scaling && saved.scaling)
    found.scaling = saved.scaling;
}

heddle_rt_status Checkpointer::load(const Checkpoint &from) {
  const Result<checkpoint::ReadPlan> reads =
      checkpoint::planReads(from.manifest(), rank.tables, rank.rank);
  HEDDLE_RT_TRY(agree(reads ? Result<void>() : reads.error()));
  std::vector<std::byte> stored;
  Result<void> done;
  for (const checkpoint::Wanted &wanted : reads->wanted) {
    const runtime::State &state = *wanted.state;
    const Extents extents = extentsOf(rank.tables, rank.rank, state);
    stored.assign(size_t(extents.storedElements() * bytesOf(state.dtype)),
                  std::byte(0));
    if (wanted.source && done)
      done = checkpoint::readWanted(from, wanted, stored);
    HEDDLE_RT_TRY(
        rank.upload(instancePlace(state, wanted.position, extents, rank.stage),
                    stored.data(), int64_t(stored.size())));
  }
  if (done)
    done = from.checkSame();
  return agree(done);
}

heddle_rt_status Checkpointer::resume(int64_t &step,
                                      checkpoint::Carried &found) {
  std::optional<Checkpoint> from;
  HEDDLE_RT_TRY(choose(from));
  const Manifest &manifest = from->manifest();
  HEDDLE_RT_TRY(checkProgress(manifest));
  HEDDLE_RT_TRY(agree(checkpoint::checkFits(manifest, rank.tables)));
  HEDDLE_RT_TRY(load(*from));
  step = manifest.step;
  goOn(manifest, found);
  parent = manifest.id;
  interruptions = manifest.progress.interruptions + (step > 0);
  deviceSeconds = manifest.progress.deviceSeconds;
  if (rank.rank == 0)
    note(fmt::format("resumed behind step {}: {}", step, from->folder()));
  return HEDDLE_RT_OK;
}

} // namespace heddle::train
