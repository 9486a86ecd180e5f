// Plans.
#include "penstock/plan/plan.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock::plan;
  return penstock::tests::fuzz(data, size, parse_plan, [](const Plan& value) {
    return parse_plan(to_json(value), "again");
  });
}
