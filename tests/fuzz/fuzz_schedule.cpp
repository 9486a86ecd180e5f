// Schedules, ours and PyTorch's: whatever is accepted can be judged and lowered without a crash, and survives being written and read again.
#include "penstock/schedule/text_format.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/verify/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  schedule::Schedule parsed;
  try {
    parsed = schedule::parse_schedule({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const ParseError&) {
    return 0;
  }
  const bool sound = verify::verify(parsed).empty();
  verify::min_credits(parsed);
  PENSTOCK_CHECK(verify::peaks(parsed).size() == parsed.workers.size());
  if (sound) PENSTOCK_CHECK(schedule::parse_schedule(schedule::to_text(parsed), "again") == parsed);
  try {
    schedule::lower(parsed, schedule::chain_links(parsed.shape.num_stages()));
  } catch (const ConfigError&) {
  }
  return 0;
}
