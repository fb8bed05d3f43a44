//===- ManifestText.h - A manifest whose hash is right ----------*- C++ -*-===//

#ifndef HEDDLE_TEST_FUZZ_TARGETS_MANIFESTTEXT_H
#define HEDDLE_TEST_FUZZ_TARGETS_MANIFESTTEXT_H

#include "runtime/checkpoint/Manifest.h"
#include "test/fuzz/Tree.h"

namespace heddle::fuzz {

/// Puts the hash of its tensors into a manifest: the reader says which one it
/// expects.
inline void repairManifest(std::string &text) {
  const auto manifest = checkpoint::parseManifest(text, "");
  if (manifest)
    return;
  const std::string &why = manifest.message();
  const std::string_view found = "key 'model_hash': found ",
                         then = ", expected ";
  constexpr size_t kDigits = 64;
  const size_t at = why.find(found);
  if (at == std::string::npos ||
      at + found.size() + 2 * kDigits + then.size() > why.size())
    return;
  const std::string wrong = why.substr(at + found.size(), kDigits);
  const std::string right =
      why.substr(at + found.size() + kDigits + then.size(), kDigits);
  if (const size_t place = text.find(wrong); place != std::string::npos)
    text.replace(place, kDigits, right);
}

} // namespace heddle::fuzz

#endif
