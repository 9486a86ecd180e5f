// Schedules, ours and PyTorch's: whatever is accepted can be judged, drawn and lowered without a
// crash, and survives being written and read again, in both forms where PyTorch's can hold it.
#include "penstock/report/report.h"
#include "penstock/schedule/formats/pytorch_csv.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/check.h"
#include "penstock/util/error.h"
#include "penstock/verify/verify.h"

namespace penstock {
namespace {

void judge(const schedule::Schedule& schedule) {
  const bool sound = verify::verify(schedule).empty();
  verify::min_credits(schedule);
  PENSTOCK_CHECK(verify::peaks(schedule).size() == schedule.workers.size());
  const auto deadlock = verify::find_deadlock(schedule, 0);
  if (!deadlock) return;
  std::vector<report::BlockedAction> blocked;
  for (const auto& stop : deadlock->blocked) blocked.push_back({stop.worker, stop.position});
  PENSTOCK_CHECK(!sound || !blocked.empty());
  report::blocked_grid(schedule, blocked);
}

void rewrite(const schedule::Schedule& schedule) {
  PENSTOCK_CHECK(schedule::parse_schedule(schedule::to_text(schedule), "again") == schedule);
  std::string csv;
  try {
    csv = schedule::to_pytorch_csv(schedule);
  } catch (const ConfigError&) {
    return;
  }
  PENSTOCK_CHECK(schedule::to_pytorch_csv(schedule::parse_pytorch_csv(csv, "again").schedule) ==
                 csv);
}

}  // namespace
}  // namespace penstock

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  schedule::Schedule parsed;
  try {
    parsed = schedule::parse_schedule({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const ParseError&) {
    return 0;
  }
  judge(parsed);
  report::text_grid(parsed);
  if (verify::verify(parsed).empty()) rewrite(parsed);
  try {
    const schedule::Schedule lowered =
        schedule::lower(parsed, schedule::chain_links(parsed.shape.num_stages()));
    judge(lowered);
    rewrite(lowered);
  } catch (const ConfigError&) {
  }
  return 0;
}
