#include "heddle/Cluster/Cluster.h"
#include "test/fuzz/Tree.h"

using namespace heddle;

static void run(std::string_view input) {
  const Result<Document> document =
      Document::parse(input, "cluster.yaml", Document::Syntax::Yaml);
  if (!fuzz::accepted(document))
    return;
  const Result<Cluster> cluster = readCluster(*document);
  if (!fuzz::accepted(cluster))
    return;
  fuzz::expect(cluster->devices() > 0, "a cluster has devices");
  fuzz::expect(cluster->planBytesPerDevice() >= 0, "memory is not negative");
  fuzz::expect(!cluster->links.empty() || cluster->devices() == 1,
               "devices are linked");
}

static fuzz::Announce target{{"Cluster", run, fuzz::mutateYaml}};
