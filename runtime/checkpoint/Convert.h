//===- Convert.h - Checkpoints in other forms -----------------------------===//

#ifndef RUNTIME_CHECKPOINT_CONVERT_H
#define RUNTIME_CHECKPOINT_CONVERT_H

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/checkpoint/Save.h"

namespace heddle::checkpoint {

/// Bytes of a file of whole tensors, unless one tensor has more.
inline constexpr uint64_t kFileBytes = uint64_t(5) * 1000 * 1000 * 1000;

/// Writes the same states as whole tensors: the content of files then follows
/// from the model alone. Profile "logical".
Result<void> writeLogical(FileSystem &files, const Checkpoint &from,
                          const SaveName &name, uint64_t most = kFileBytes);

/// Writes the same states as the ranks of another program would save them.
Result<void> writeSharded(FileSystem &files, const Checkpoint &from,
                          const runtime::Tables &tables, const SaveName &name);

/// Writes the parameters as a model's published folder has them: whole tensors
/// in one file, or in several with an index. Of each the first of `roles` that
/// is there, in its own format. `config`: bytes of a config.json, "" for none.
/// The folder is not there before it is complete.
Result<void> exportHf(FileSystem &files, const Checkpoint &from,
                      const std::string &folder,
                      const std::vector<std::string> &roles,
                      const std::string &config, uint64_t most = kFileBytes);

/// A published folder, seen as a checkpoint of step 0 with parameters alone. It
/// has no checksums to be verified by. Refused: an index that names other files
/// or other tensors than there are, names that lead out of the folder.
Result<Checkpoint> openHf(const FileSystem &files, const std::string &folder);

} // namespace heddle::checkpoint

#endif
