// Candidates of a kind, each simulated for two steps, and the fastest of them. Internal to the
// planner.
//
//   Trials trials(context);
//   trials.begin(0, "there is no split");
//   for (const Candidate& candidate : candidates) trials.offer(candidate);
//   PlanResult best = trials.result();
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/planner/families/candidates.h"
#include "penstock/planner/plan_result.h"
#include "penstock/planner/pricing/pricing.h"
#include "penstock/util/error.h"

namespace penstock::planner {

/// Pricing what a search found may end so much after it.
inline constexpr std::chrono::nanoseconds kForPricing{std::chrono::seconds(1)};

/// No schedule of the plan is faster.
double most_samples_per_s(const Priced& priced);

/// Of the worker that needs most.
int64_t memory_bytes_of(const plan::Plan& plan);

/// A candidate with what it takes to fit.
struct Tried {
  Candidate candidate;
  Priced priced;
  std::string reason;  ///< why it cannot be run; empty
};

/// Simulates a candidate for two steps: where it does not fit, with recomputation on the workers
/// that are too full, then with shorter steps; with these also where a step is too long to be
/// simulated. Throws SearchEnded, ConfigError where the kind cannot run the split.
Tried tried(const Context& context, Candidate candidate);

/// Those that may be fastest first: where time is short, they are tried at all, and more of the
/// others need not be. The first `fixed` stay where they are.
template <class Found>
std::vector<Found> promising_first(const Context& context, std::vector<Found> splits,
                                   size_t fixed = 0) {
  std::vector<std::pair<double, Found>> rated;
  rated.reserve(splits.size());
  for (Found& found : splits) {
    double most = rated.size() < fixed ? HUGE_VAL : 0;
    try {
      if (most == 0)
        most = most_samples_per_s(price_parts(context, found.split, found.micro_batches));
    } catch (const ConfigError&) {  // the kind cannot run this split
    }
    rated.emplace_back(most, std::move(found));
  }
  std::ranges::stable_sort(rated, std::greater(), [](const auto& entry) { return entry.first; });
  std::ranges::transform(rated, splits.begin(),
                         [](auto& entry) { return std::move(entry.second); });
  return splits;
}

/// Why none of the candidates fits: that of the one that needs the least memory.
class LeastNeeded {
 public:
  explicit LeastNeeded(std::string reason) : reason_(std::move(reason)) {}

  void add(const Tried& tried) {
    const int64_t bytes =
        tried.priced.plan.stages.empty() ? INT64_MAX : memory_bytes_of(tried.priced.plan);
    if (bytes < INT64_MAX) ++known_;
    if (bytes > bytes_ || (bytes == bytes_ && known_ > 0)) return;
    bytes_ = bytes;
    reason_ = tried.reason;
  }
  void add(const ConfigError& error) {
    if (known_ == 0) reason_ = error.what();
  }
  std::string text() const {
    return known_ < 2
               ? reason_
               : fmt::format("{}; the other splits tried ({}) need no less", reason_, known_ - 1);
  }

 private:
  std::string reason_;
  int64_t bytes_ = INT64_MAX;
  int known_ = 0;
};

/// The fastest of the candidates offered, in one turn of the search's time or in several.
class Trials {
 public:
  /// Keeps a reference.
  explicit Trials(const Context& context) : context_(context) {}

  /// The candidates of another turn follow; those that are not faster than that are not tried.
  /// `reason`: why there are none, if so.
  void begin(double faster_than, std::string reason);
  /// Samples per second that a candidate has to exceed.
  double needed() const;
  /// False when a limit of the search is met. Throws SearchEnded when that is so before there is
  /// any.
  bool offer(const Candidate& candidate);
  /// Whether they were since the last time that one asked.
  bool were_cut_short() { return std::exchange(are_cut_short_, false); }
  PlanResult result() const;

 private:
  bool is_known(const Candidate& candidate) const;

  const Context& context_;
  double faster_than_ = 0;
  bool are_cut_short_ = false;
  std::optional<LeastNeeded> refused_;
  std::vector<Candidate> known_;  ///< tried in this turn or an earlier one
  std::optional<Tried> best_;
  std::chrono::nanoseconds best_after_{0};  ///< PlanResult::found_after of it
};

}  // namespace penstock::planner
