#include "runtime/train/Cbor.h"
#include "test/fuzz/Tree.h"

using namespace heddle;

static void run(std::string_view input) {
  const Result<DocumentValue> value = train::decodeCbor(input);
  if (!fuzz::accepted(value))
    return;
  const std::string bytes = fuzz::cborOf(*value);
  const Result<DocumentValue> again = train::decodeCbor(bytes);
  fuzz::expect(bool(again), "CBOR that is written is read",
               again ? "" : again.message());
  fuzz::expect(fuzz::cborOf(*again) == bytes, "CBOR comes back as it was");
}

static fuzz::Announce target{{"Cbor", run, fuzz::mutateCbor}};
