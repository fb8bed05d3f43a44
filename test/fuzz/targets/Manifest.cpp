#include "test/fuzz/targets/ManifestText.h"

using namespace heddle;
using namespace heddle::checkpoint;

// What is read is written and read again as the same.
static void run(std::string_view input) {
  const Result<Manifest> manifest = parseManifest(input, "manifest.json");
  if (!fuzz::accepted(manifest))
    return;
  const std::string text = manifestText(*manifest);
  const Result<Manifest> again = parseManifest(text, "again.json");
  fuzz::expect(bool(again), "a manifest that is written is read",
               again ? "" : again.message());
  fuzz::expect(manifestText(*again) == text, "a manifest comes back", text);
  (void)fuzz::accepted(checkCommit(commitText(*manifest, text), "step", text));
  for (const auto &[name, states] : manifest->tensors)
    for (const auto &[role, state] : states)
      for (const Extent &extent : state.extents)
        fuzz::expect(extent.end >= extent.begin, "an extent has bytes", name);
}

static fuzz::Announce target{
    {"Manifest", run, fuzz::mutateJson, fuzz::repairManifest}};
