// The best plan of every family, each made at most once. Internal to the planner.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "penstock/planner/families/candidates.h"
#include "penstock/planner/families/split_finder.h"
#include "penstock/planner/families/trials.h"
#include "penstock/planner/plan_result.h"

namespace penstock::planner {

/// Less than this comes from filling and draining: such plans are equally fast, and the optimum
/// stays.
inline constexpr double kFaster = 1.005;

/// A family as the table shows it.
struct FamilyRow {
  plan::Alternative entry;  ///< throughput 0 and the reason as its note where there is no plan
  bool planned = false;     ///< there is a plan behind it
};

class Families {
 public:
  /// Keeps references to both.
  Families(const Context& context, SplitFinder& finder);

  /// The best plan of a family. `reason` of a refusal names the minimum memory required, which
  /// takes as long as planning, only if it is wanted. Throws ConfigError when the user's steps suit
  /// no plan of the kind.
  PlanResult plan(Family family, bool wants_least_memory);

  /// The plan that stands for a strategy when families are compared, with the kind's
  /// own weight policy. For 1f1b under "penstock" the faster one, simulated, of the optimum and the
  /// best straight split; for the synchronous pipelines but gpipe and 1f1b-flush the best of
  /// synchronous_candidates(). Never throws ConfigError: what is refused is a reason.
  const PlanResult& standard(plan::Strategy strategy);

  /// The best plan of a kind, or no plan where it is not faster than that; of a synchronous
  /// pipeline only so far as is needed to know. With a turn of the search's time, what its end cut
  /// short goes on in another.
  PlanResult faster(plan::Strategy strategy, double samples_per_s);
  /// Whether the turn of the last one ended before it was done.
  bool was_cut_short() const { return was_cut_short_; }
  /// From now on what was cut short goes on.
  void go_on() { finder_.search_again(); }
  void note_out_of_time() { finder_.note_out_of_time(); }

  /// Data parallelism with a step of at most so many micro-batches, if it fits the memory.
  PlanResult data_parallel(int64_t micro_batches);

  /// No plan of the kind is faster, whatever its messages, sums and memory take: all computation
  /// shared out over the workers, or one worker's where one works at a time.
  double bound_samples_per_s(plan::Strategy strategy) const;
  /// Those that can be fastest first, so that none of them is missing where time is short; of
  /// equal ones those last that take longest to plan.
  std::vector<plan::Strategy> by_bound(std::span<const plan::Strategy> strategies) const;

  /// Whether computation may hide sums of gradients, so that Family::counts_sums makes sense.
  bool may_hide_sums() const {
    return context_.counting_model != nullptr && context_.model->name() == "penstock";
  }
  /// Whether memory is limited at all.
  bool limited() const { return context_.limited(); }

  /// Rows of the named families; `winner` stands for its own.
  std::vector<FamilyRow> rows(std::span<const plan::Strategy> strategies, const plan::Plan& winner);

 private:
  /// plan() with the search's own limit. `excess`: 0, or by how many bytes the worker with the most
  /// is beyond its memory, of the split that comes closest.
  PlanResult best_of(const Family& family, bool wants_least_memory, int64_t& excess);
  /// The split that needs least, where it fits: what a refusal names is enough. No plan: it does
  /// not.
  PlanResult of_least_memory(const Family& family);
  PlanResult make(plan::Strategy strategy);
  /// plan(), whose end does not take along a plan that there is. Throws SearchEnded without one.
  PlanResult planned_beside(const Family& family, bool has_plan);
  /// make(), where a refusal of any kind is a reason.
  PlanResult made(plan::Strategy strategy);
  /// As standard(), made anew where that was cut short; what is slower is forgotten.
  const PlanResult& renewed(plan::Strategy strategy);
  PlanResult best_synchronous(plan::Strategy strategy, double faster_than);
  PlanResult hybrid();
  FamilyRow row(plan::Strategy strategy, const plan::Plan& winner);
  std::string why_missing(plan::Strategy strategy, const plan::Plan& winner) const;

  const Context& context_;
  SplitFinder& finder_;
  double one_worker_samples_per_s_ = 0;  ///< of the fastest, at most
  double all_workers_samples_per_s_ = 0;
  std::map<plan::Strategy, PlanResult> standard_;
  std::set<plan::Strategy> unfinished_;      ///< of these, what another turn may improve
  std::map<plan::Strategy, Trials> trials_;  ///< in all turns of a kind
  bool was_cut_short_ = false;
};

/// Those that "auto" may pick among the pipelines that flush: gpipe, 1f1b-flush, ...
std::span<const plan::Strategy> synchronous_pipelines();
/// The families shown beside every plan; all of them are plan::training_strategies().
std::span<const plan::Strategy> short_list();

/// What a plan promises, as a row of the table.
plan::Alternative alternative_of(const plan::Plan& plan, plan::Strategy strategy);

}  // namespace penstock::planner
