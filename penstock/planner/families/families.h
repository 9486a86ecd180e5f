// The best plan of every family, each made at most once. Internal to the planner.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/planner/families/candidates.h"
#include "penstock/planner/families/split_finder.h"
#include "penstock/planner/plan_result.h"

namespace penstock::planner {

/// A family as the table shows it.
struct FamilyRow {
  plan::Alternative entry;  ///< throughput 0 and the reason as its note where there is no plan
  bool planned = false;     ///< there is a plan behind it
};

class Families {
 public:
  /// Keeps references to both.
  Families(const Context& context, SplitFinder& finder) : context_(context), finder_(finder) {}

  /// The best plan of a family. `reason` of a refusal names the least memory that would do, which
  /// takes as long as planning, only if it is wanted. Throws ConfigError when the user's steps suit
  /// no plan of the kind.
  PlanResult plan(const Family& family, bool wants_least_memory);

  /// The plan that stands for a kind, or for "hybrid", when families are compared, with the kind's
  /// own weight policy. For 1f1b under "penstock" the faster one, simulated, of the optimum and the
  /// best straight split; for the synchronous pipelines but gpipe and 1f1b-flush the best of
  /// synchronous_candidates(). Never throws ConfigError: what is refused is a reason.
  const PlanResult& standard(const std::string& strategy);

  /// The best plan of a synchronous pipeline if it is faster than that. `one_copy`: only splits
  /// without replicas.
  std::optional<plan::Plan> faster_synchronous(const std::string& strategy, double samples_per_s,
                                               bool one_copy);

  /// Whether memory is limited at all.
  bool limited() const { return context_.limited(); }

  /// Rows of the named families; `winner` stands for its own.
  std::vector<FamilyRow> rows(const std::vector<std::string>& strategies, const plan::Plan& winner);

 private:
  PlanResult make(const std::string& strategy);
  PlanResult best_of(const std::vector<Candidate>& candidates, double faster_than,
                     std::string reason);
  PlanResult hybrid();
  FamilyRow row(const std::string& strategy, const plan::Plan& winner);

  const Context& context_;
  SplitFinder& finder_;
  std::map<std::string, PlanResult> standard_;
};

/// The synchronous pipelines, without hybrid: gpipe, 1f1b-flush, ...
const std::vector<std::string>& synchronous_pipelines();
/// The families of the short list, and of the whole table.
const std::vector<std::string>& short_list();
const std::vector<std::string>& all_families();

/// What a plan promises, as a row of the table.
plan::Alternative alternative_of(const plan::Plan& plan, const std::string& strategy);

}  // namespace penstock::planner
