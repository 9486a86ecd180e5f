// The families of strategies side by side, as the tables and the page show them. Internal to the
// reports.
//
//   for (const Family& family : families_of(plan)) ...   // the winner's is_winner is set
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/plan/plan.h"
#include "penstock/plan/what_if_result.h"

namespace penstock::report {

struct Family {
  plan::Alternative numbers;
  bool is_winner = false;  ///< this is the plan itself
};

/// Empty when it is not known.
std::string name_of(std::optional<plan::WeightPolicy> weights);
/// Whether the alternative is the plan.
bool is_chosen(const plan::Plan& plan, const plan::Alternative& alternative);

/// The plan's alternatives in their order, the plan itself first when it is not among them.
std::vector<Family> families_of(const plan::Plan& plan);

/// Of the first family with that strategy; 0 when there is none.
double throughput_of(const std::vector<Family>& families, plan::Strategy strategy);

/// Why the winner is the winner, one line; then why each other family is not, where its note says
/// so.
std::vector<std::string> reasons_of(const std::vector<Family>& families);

/// The plan's notes without those that repeat what reasons_of() says of a family.
std::vector<std::string> other_notes(const plan::Plan& plan);

/// "+12 %", "-3.0 %", "same", "no plan".
std::string change_text(const plan::WhatIfResult& change);

}  // namespace penstock::report
