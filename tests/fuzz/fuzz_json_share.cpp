// Profiles of some layers, and joining them.
#include "penstock/profile/share.h"
#include "penstock/util/error.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock::profile;
  return penstock::tests::fuzz(data, size, parse_share, [](const Share& value) {
    try {
      join({value, value}, {"one", "two"});
    } catch (const penstock::ConfigError&) {
    }
    return parse_share(to_json(value), "again");
  });
}
