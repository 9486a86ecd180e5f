#include "penstock/schedule/orders/search_order.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "penstock/schedule/orders/greedy_order.h"
#include "penstock/schedule/orders/kept_range.h"
#include "penstock/schedule/orders/order_clock.h"
#include "penstock/schedule/orders/order_credits.h"
#include "penstock/schedule/orders/search_trails.h"
#include "penstock/util/check.h"
#include "penstock/util/numbers/rng.h"

namespace penstock::schedule {
namespace {

/// Whether `later` may not come before `earlier` on the same worker.
bool must_follow(const OrderStep& earlier, const OrderStep& later) {
  if (earlier.stage != later.stage) return false;
  // Each stage goes through the micro-batches in one order, so that messages stay in theirs.
  return earlier.op == later.op || (earlier.micro_batch == later.micro_batch);
}

/// Those that made the best order of some limit in 1,200 random problems; with several stages on a
/// worker few of them did.
std::vector<GreedyRules> rules_to_try(bool several_stages) {
  std::vector<GreedyRules> rules;
  for (const int64_t lead : {100, 125, 150, 200, 250}) {
    for (const int64_t patience : {0, 50, 100}) {
      for (const int64_t reserve : {0, 30, 40}) {
        for (const bool free_memory_first : {false, true}) {
          const bool chosen = several_stages
                                  ? lead == 100 ? !free_memory_first || reserve == 0
                                                : lead == 125 && reserve == 0 && !free_memory_first
                                  : reserve == 0;
          if (chosen) rules.push_back({lead, patience, reserve, free_memory_first});
        }
      }
    }
  }
  return rules;
}

/// An order with its time, improved move by move.
class Search {
 public:
  explicit Search(const OrderProblem& problem)
      : problem_(problem), clock_(problem), least_(least_time(problem)) {}

  void may_keep(std::vector<int64_t> most_kept) {
    problem_.most_kept = std::move(most_kept);
    range_ = KeptRange(problem_.most_kept.size());
  }
  /// Since may_keep().
  const KeptRange& range() const { return range_; }
  bool is_perfect() const { return time_.end == least_; }
  const Order& order() const { return order_; }
  int64_t spent() const { return spent_before_ + clock_.steps_run(); }

  /// Goes on where another search of the same problem stood.
  void go_on(const Standing& standing) {
    order_ = *standing.order;
    time_ = standing.time;
    rng_ = standing.rng;
    spent_before_ = standing.spent - clock_.steps_run();
  }
  /// `before`: an earlier standing, which shares its order where that is the same.
  Standing standing(const Standing& before, std::vector<bool> offered) const {
    const bool is_same = *before.order == order_;
    return {.order = is_same ? before.order : std::make_shared<const Order>(order_),
            .time = time_,
            .rng = rng_,
            .spent = spent(),
            .offered = std::move(offered)};
  }

  /// False when it keeps too much.
  bool offer(Order order) {
    if (order.empty() || !fits_all(order)) return false;
    const OrderTime time = clock_.run(order, time_);
    if (time >= time_ || !has_credits(order)) return true;
    time_ = time;
    order_ = std::move(order);
    return true;
  }

  /// greedy_order()'s.
  void offer_greedy(const GreedyRules& rules) {
    offer(greedy_order(problem_, rules, time_.end, &range_));
  }

  /// Until no move helps, from the order itself and from kTries orders near it, or the clock has
  /// run `until` steps in all.
  void improve(int64_t until) {
    if (order_.empty()) return;  // none of those offered runs with one credit
    descend(until);
    for (int tries = 0; tries < kTries && !is_perfect() && spent() < until;) {
      const Order best = order_;
      const OrderTime best_time = time_;
      disturb();
      descend(until);
      if (time_ < best_time) {
        tries = 0;
        continue;
      }
      order_ = best;
      time_ = best_time;
      ++tries;
    }
  }

 private:
  static constexpr int kTries = 30;
  static constexpr int kDisturbed = 3;

  void descend(int64_t until) {
    while (!is_perfect() && spent() < until && improve_once(until)) {
    }
  }

  bool fits_in(int32_t worker, const std::vector<OrderStep>& list) {
    const auto w = static_cast<size_t>(worker);
    int64_t most = 0;
    int64_t kept = 0;
    for (const OrderStep& step : list) {
      if (step.op == Op::Forward) most = std::max(most, ++kept);
      if (step.op == Op::BackwardWeight) --kept;
    }
    return range_.allows(w, most, problem_.most_kept[w]);
  }
  bool fits_all(const Order& order) {
    for (int32_t w = 0; w < problem_.num_workers; ++w) {
      if (!fits_in(w, order[static_cast<size_t>(w)])) return false;
    }
    return true;
  }

  bool has_credits(const Order& order) const {
    return !problem_.one_credit || runs_with_one_credit(problem_, order);
  }

  /// Some steps elsewhere, whatever that costs.
  void disturb() {
    for (int moved = 0; moved < kDisturbed; ++moved) {
      const auto worker = static_cast<int32_t>(rng_.below(order_.size()));
      std::vector<OrderStep>& list = order_[static_cast<size_t>(worker)];
      if (list.empty()) continue;
      const size_t from = rng_.below(list.size());
      const size_t target = nearest(list, from, rng_.below(list.size()));
      shift(list, from, target);
      const OrderTime time = fits_in(worker, list) ? clock_.run(order_) : OrderTime{};
      if (time.is_stuck() || !has_credits(order_))
        shift(list, target, from);
      else
        time_ = time;
    }
  }

  bool improve_once(int64_t until) {
    clock_.run(order_);
    const std::vector<CriticalRun> runs = clock_.critical_runs(order_);
    for (const CriticalRun& run : runs) {
      const std::vector<OrderStep>& list = order_[static_cast<size_t>(run.worker)];
      const size_t last = std::min(run.last, list.size() - 1);
      for (size_t k = run.first; k <= last; ++k) {
        if (spent() >= until) return false;
        // What the path goes through at the run's end, earlier; what delays it, later.
        if (k > run.first && (k == last || list[k].op != Op::BackwardWeight) &&
            (move(run.worker, k, run.first) || move(run.worker, k, k - 1))) {
          return true;
        }
        if (k < last && (move(run.worker, k, last) || move(run.worker, k, k + 1))) return true;
        if (list[k].op == Op::BackwardWeight && k < last && move_out(run.worker, k, last))
          return true;
      }
    }
    return false;
  }

  /// Further on, in steps that double.
  bool move_out(int32_t worker, size_t from, size_t last) {
    const size_t size = order_[static_cast<size_t>(worker)].size();
    for (size_t further = 1; last + further < size; further *= 2) {
      if (move(worker, from, last + further)) return true;
    }
    return false;
  }

  /// Takes the step out and puts it in so that it stands at `to`, or as near as it may; keeps that
  /// when it helps.
  bool move(int32_t worker, size_t from, size_t to) {
    std::vector<OrderStep>& list = order_[static_cast<size_t>(worker)];
    const size_t target = nearest(list, from, to);
    if (target == from) return false;
    shift(list, from, target);
    if (fits_in(worker, list)) {
      const OrderTime time = clock_.run(order_, time_);
      if (time < time_ && has_credits(order_)) {
        time_ = time;
        return true;
      }
    }
    shift(list, target, from);
    return false;
  }

  static size_t nearest(const std::vector<OrderStep>& list, size_t from, size_t to) {
    size_t at = from;
    if (to < from) {
      while (at > to && !must_follow(list[at - 1], list[from])) --at;
    } else {
      while (at < to && !must_follow(list[from], list[at + 1])) ++at;
    }
    return at;
  }

  static void shift(std::vector<OrderStep>& list, size_t from, size_t to) {
    const auto begin = list.begin();
    const auto f = static_cast<std::ptrdiff_t>(from);
    const auto t = static_cast<std::ptrdiff_t>(to);
    if (from < to)
      std::rotate(begin + f, begin + f + 1, begin + t + 1);
    else
      std::rotate(begin + t, begin + f, begin + f + 1);
  }

  OrderProblem problem_;
  KeptRange range_;
  OrderClock clock_;
  int64_t least_;
  Order order_;
  OrderTime time_;
  Rng rng_{1};
  int64_t spent_before_ = 0;
};

/// The numbers of micro-batches to keep that are tried in turn, up to `most`, and no more of them
/// than `count`, or a handful. They do not depend on what is allowed.
std::vector<int64_t> limits_to_try(int64_t least, int64_t most, int64_t stages, int64_t count) {
  std::vector<int64_t> limits;
  for (int64_t share = 8; share >= 1; share /= 2) {
    limits.clear();
    // More than twice the depth of the pipeline hardly helps.
    for (int64_t k = least; k <= most;
         k += std::max<int64_t>(k < 2 * stages ? k / share : 4 * k / share, 1))
      limits.push_back(k);
    if (static_cast<int64_t>(limits.size()) <= count) break;
  }
  return limits;
}

/// Longer orders are not remembered: a trail has one per limit.
constexpr int64_t kMostRemembered = 10'000;

int64_t steps_of(const OrderProblem& problem) {
  return std::max<int64_t>(int64_t{3} * problem.num_micro_batches * problem.num_stages(), 1);
}

/// Messages that share links of several levels are events of their own: of a long order, a step
/// takes so many times as long as one without them.
int64_t weight_of_step(const OrderProblem& problem) {
  constexpr int64_t kShort = 3'000;
  constexpr int64_t kPerLevel = 4;
  if (steps_of(problem) <= kShort) return 1;
  return 1 + kPerLevel * static_cast<int64_t>(problem.link_units.size());
}

/// What search_order() tries, in turn.
struct Tries {
  std::vector<GreedyRules> rules = {};
  std::vector<std::vector<int64_t>> may_keep = {};  ///< per limit and worker
  int64_t effort_per_limit = 0;
};

Tries tries_of(const OrderProblem& problem, const std::vector<int64_t>& held, int64_t effort) {
  const int64_t least = *std::max_element(held.begin(), held.end());
  const int64_t micro_batches = problem.num_micro_batches;
  const int64_t steps = steps_of(problem);
  Tries tries{.rules = rules_to_try(least > 1)};
  std::vector<GreedyRules>& rules = tries.rules;
  // A greedy order takes as long as looking at its steps a few times.
  const int64_t affordable = std::max<int64_t>(effort / (4 * steps), 8);
  if (affordable < 8 * static_cast<int64_t>(rules.size())) rules.resize(4);
  if (affordable < 32) rules.resize(1);
  const int64_t allowed = *std::max_element(problem.most_kept.begin(), problem.most_kept.end());
  std::vector<int64_t> limits =
      limits_to_try(least, std::max(least, micro_batches * least), problem.num_stages(),
                    affordable / static_cast<int64_t>(rules.size()));
  if (affordable < 32) limits = {allowed};  // too large to go through fewer first
  tries.effort_per_limit = effort / static_cast<int64_t>(limits.size());
  for (const int64_t limit : limits) {
    if (limit > allowed) break;
    std::vector<int64_t>& most = tries.may_keep.emplace_back(problem.most_kept);
    for (size_t w = 0; w < held.size(); ++w) most[w] = std::max(std::min(most[w], limit), held[w]);
  }
  return tries;
}

/// Goes through the limits, from the first one that `trail` does not have, which it appends. False
/// when it has found an order that cannot be better.
bool go_through(Search& search, const std::vector<Order>& known, const Tries& tries, Trail& trail) {
  while (trail.size() < tries.may_keep.size()) {
    const Standing before = trail.empty() ? Standing{.offered = std::vector<bool>(known.size())}
                                          : trail.back()->standing;
    std::vector<bool> offered = before.offered;
    search.may_keep(tries.may_keep[trail.size()]);
    for (size_t k = 0; k < known.size(); ++k) {
      if (!offered[k]) offered[k] = search.offer(known[k]);
    }
    for (const GreedyRules& rules : tries.rules) {
      if (search.is_perfect()) return false;
      search.offer_greedy(rules);
    }
    search.improve(search.spent() + tries.effort_per_limit);
    trail.push_back(std::make_shared<const Stop>(
        Stop{.may_keep = search.range(), .standing = search.standing(before, std::move(offered))}));
  }
  return true;
}

}  // namespace

Order search_order(const OrderProblem& problem, const std::vector<Order>& known, int64_t effort) {
  std::vector<int64_t> held(static_cast<size_t>(problem.num_workers));
  for (const OrderProblem::Stage& stage : problem.stages) {
    for (const int32_t w : stage.workers) ++held[static_cast<size_t>(w)];
  }
  for (size_t w = 0; w < held.size(); ++w)
    PENSTOCK_CHECK(problem.most_kept[w] >= held[w], w, problem.most_kept[w], held[w]);
  const Tries tries = tries_of(problem, held, effort / weight_of_step(problem));

  static Trails trails;
  const bool remembers = steps_of(problem) <= kMostRemembered;
  Trails::Asked asked{.problem = problem, .known = known, .effort = effort};
  asked.problem.most_kept.clear();
  Trail trail = remembers ? trails.find(asked, tries.may_keep) : Trail{};
  Search search(problem);
  if (!trail.empty()) search.go_on(trail.back()->standing);
  const bool may_improve = go_through(search, known, tries, trail);
  std::vector<bool> offered =
      trail.empty() ? std::vector<bool>(known.size()) : trail.back()->standing.offered;
  if (remembers) trails.add(std::move(asked), std::move(trail));
  if (!may_improve) return search.order();
  search.may_keep(problem.most_kept);
  for (size_t k = 0; k < known.size(); ++k) {
    if (!offered[k]) search.offer(known[k]);
  }
  return search.order();
}

}  // namespace penstock::schedule
