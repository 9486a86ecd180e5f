// Proves a schedule without an end sound: its short sample is sound, and every worker's list
// repeats one period, which the sample holds several times. So each further period leaves all
// channels, stashes and versions as the one before left them, and what holds for the sample holds
// for ever.
//
//   for (const Violation& v : verify_endless(endless, {.credits = 1})) std::cerr << v.message;
#pragma once

#include <vector>

#include "penstock/schedule/endless_schedule.h"
#include "penstock/verify/verify.h"

namespace penstock::verify {

/// Empty when it is sound. Besides verify()'s rules: `period`. Throws ConfigError for negative
/// credits. O(actions of the sample).
std::vector<Violation> verify_endless(const schedule::EndlessSchedule& endless,
                                      const Options& options = {});

}  // namespace penstock::verify
