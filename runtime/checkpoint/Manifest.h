//===- Manifest.h - What a checkpoint consists of -------------------------===//
//
//   ROOT/
//     .lock                       held by the run that writes here
//     LATEST                      for people; nothing trusts it
//     step-0000001200/            there only when it is complete
//       COMMIT                    one line that vouches for the manifest
//       manifest.json
//       model/rank-00000.safetensors     parameters
//       optim/rank-00000.safetensors     masters and moments
//     .tmp-step-0000001300-ID/    being written
//     .trash-step-0000001000-ID   being removed
//
// A tensor has the name and the shape that it has in its model's published
// files: unfused, without padding, whatever the plan. Extents are boxes of it.
// Numbers that must come back exactly are integers or hexadecimal floats in
// quotes.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_CHECKPOINT_MANIFEST_H
#define RUNTIME_CHECKPOINT_MANIFEST_H

#include "heddle/Runtime/Tables.h"
#include "heddle/Support/Result.h"
#include "heddle/Support/Safetensors.h"

#include "runtime/checkpoint/Pieces.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace heddle::checkpoint {

/// A box of a tensor, whole under a key of a file.
struct Extent {
  int64_t file = 0; ///< index in Manifest::files
  std::string key;
  Box box;
  uint64_t begin = 0, end = 0; ///< bytes behind the file's header
  uint32_t crc = 0;            ///< CRC-32C of these bytes
};

/// One state of a tensor.
struct StateRecord {
  TensorType type = TensorType::F32;
  std::vector<int64_t> shape;
  std::vector<Extent> extents; ///< tile the shape
};

struct FileRecord {
  std::string name; ///< below the checkpoint's folder
  uint64_t bytes = 0, headerBytes = 0;
  uint32_t headerCrc = 0, crc = 0; ///< CRC-32C; the second of the whole file
};

/// The loss scale behind a step (LossScale.h) and how far its rules have come.
struct Scaling {
  double scale = 1;
  int64_t finiteSteps = 0;  ///< since it has changed last
  int64_t patience = 1;     ///< overflows left until it halves
  int64_t skippedInRow = 0; ///< at the least scale

  bool operator==(const Scaling &) const = default;
};

/// What changes from step to step beside tensors, but not with the step's
/// number alone.
struct Carried {
  int64_t skippedSteps = 0;       ///< not counted by the optimizer: overflows
  std::optional<Scaling> scaling; ///< of runs that scale their loss
};

/// What training goes on from, beside tensors. Random numbers are a function
/// of (seed, step) and places in the whole model, samples of (seed, step,
/// number in the batch): these numbers are all of their state.
struct Progress {
  int64_t seed = 1, globalBatch = 0, sequenceLength = 0;
  int64_t nextSample = 0; ///< step * global batch: the first one not consumed
  int64_t dataBytes = 0;  ///< size of the file of samples; 0: not known
  runtime::Optimizer optimizer;
  runtime::Schedule schedule;
  Carried carried;
  int64_t interruptions = 0; ///< runs that ended and were resumed
  int64_t deviceSeconds = 0; ///< of all runs so far, all ranks added up
};

struct Manifest {
  std::string id;     ///< 32 hexadecimal digits
  std::string parent; ///< id of the one that the run began from; "" for none
  int64_t step = 0;
  int64_t createdUnixNs = 0;
  std::string profile = "sharded"; ///< or "logical": whole tensors
  std::string program;             ///< name for people
  std::vector<std::pair<std::string, int64_t>> mesh; ///< of the writers
  std::vector<FileRecord> files;
  /// By the tensor's name, then by role: "param", "master", "m", "v".
  std::map<std::string, std::map<std::string, StateRecord>> tensors;
  Progress progress;
};

/// Kind of what scales of narrow formats are made of. A run in other formats
/// goes on without it, and one in such formats begins it.
inline constexpr const char *kScalingKind = "scaling";

/// "param" for kind "parameter", "m" for "adam_m"; other kinds are their role.
std::string roleOf(const std::string &kind);

/// SHA-256 over name, role, dtype and shape of every state.
std::string modelHash(const Manifest &manifest);

std::string manifestText(const Manifest &manifest);
/// Reads and checks: names are plain, sizes agree, extents tile tensors and
/// files, no key is there twice. `path` is the name that messages give.
Result<Manifest> parseManifest(std::string_view text, const std::string &path);
/// The checks alone, of what is to be written.
Result<void> checkManifest(const Manifest &manifest, const std::string &path);

/// The line of COMMIT.
std::string commitText(const Manifest &manifest, std::string_view text);
/// Whether it vouches for this manifest's text.
Result<void> checkCommit(std::string_view line, const std::string &folder,
                         std::string_view text);

/// "step-0000001200".
std::string stepFolder(int64_t step);
/// None for another name.
std::optional<int64_t> stepOfFolder(std::string_view name);

} // namespace heddle::checkpoint

#endif
