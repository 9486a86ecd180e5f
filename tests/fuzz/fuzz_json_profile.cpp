// Profiles in our own format.
#include "penstock/profile/profile.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock::profile;
  return penstock::tests::fuzz(data, size, parse_profile, [](const Profile& value) {
    return parse_profile(to_json(value), "again");
  });
}
