#include "heddle/Support/Document.h"
#include "test/fuzz/Tree.h"

using namespace heddle;

static void run(std::string_view input) {
  (void)fuzz::accepted(
      Document::parse(input, "input.yaml", Document::Syntax::Yaml));
}

static fuzz::Announce target{{"Yaml", run, fuzz::mutateYaml}};
