// Cluster files.
#include "penstock/cluster/cluster.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock::cluster;
  return penstock::tests::fuzz(data, size, parse_cluster, [](const Cluster& value) {
    return parse_cluster(to_toml(value), "again");
  });
}
