// The seven rules. Each reads a schedule whose actions are well placed (check_placement()) and adds
// what it finds to the report; each file begins with its property and the smallest schedule that
// breaks it. All are linear in the number of actions.
#pragma once

#include <cstdint>

#include "penstock/verify/facts.h"
#include "penstock/verify/values.h"
#include "penstock/verify/violation_list.h"

namespace penstock::verify {

void check_complete(const Facts& facts, Report& report);
void check_order(const Facts& facts, Report& report);
void check_pairing(const Facts& facts, Report& report);
void check_deadlock(const Facts& facts, int64_t credits, Report& report);
void check_team(const Facts& facts, Report& report);
void check_weights(const Facts& facts, Report& report);
void check_memory(const Facts& facts, const Options& options, Report& report);

}  // namespace penstock::verify
