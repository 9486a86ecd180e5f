#include "penstock/planner/partition/table_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>

#include "penstock/planner/partition/load_bound.h"
#include "penstock/planner/partition/table_cell.h"
#include "penstock/planner/partition/table_pieces.h"
#include "penstock/util/error.h"
#include "penstock/util/numbers/arithmetic.h"

namespace penstock::planner {

namespace {

// At about 20 ns for a stage at a worker, some seconds for each time limit if the bounds rule
// nothing out.
constexpr double kMostStagePlaces = 2e8;
constexpr double kMostCells = 4e6;

class TableSearch final : public StateSearch {
 public:
  explicit TableSearch(const PartitionProblem& problem)
      : StateSearch(problem),
        workers_(problem.workers),
        all_workers_(problem.use_all_workers && !problem.straight),
        single_layers_(single_layers(problem)),
        held_pieces_(problem.budget) {
    check_size();
    if (single_layers_) counts_ = layer_counts(states_);
    const size_t cells = static_cast<size_t>(states_.size()) * static_cast<size_t>(workers_ + 1);
    counted_.add(cells * (sizeof(Cell) + sizeof(int)));
    cells_.resize(static_cast<size_t>(states_.size()) * static_cast<size_t>(workers_ + 1));
    limits_.resize(static_cast<size_t>(states_.size()));
    most_free_.resize(static_cast<size_t>(states_.size()));
    speed_before_.push_back(0);
    for (int worker = 0; worker < workers_; ++worker) {
      const double speed = problem.cluster.device_of(worker).speed;
      fastest_ = std::max(fastest_, speed);
      speed_before_.push_back(speed_before_.back() + speed);
    }
  }

  std::optional<Partition> within(double limit_ns, Wanted wanted) override {
    limit_ns_ = limit_ns;
    wanted_ = wanted;
    // The memory limit may have changed since the last time.
    pieces_ = {};
    pieces_ = list_pieces(problem_, units_, held_pieces_);
    limited_ = any_limited(pieces_);
    std::fill(cells_.begin(), cells_.end(), Cell{});
    std::fill(most_free_.begin(), most_free_.end(), -1);
    covered_.assign(nesting_.num_words(), 0);
    begins_.assign(most_free_.size(), 0);
    most_stages_.assign(most_free_.size(), 0);
    fewest_stages_.assign(most_free_.size(), 0);
    cell(states_.full(), workers_).workers = 0;
    most_free_.back() = workers_;
    for (int i = states_.full(); i >= 0; --i) {
      problem_.time.check();
      limits_[static_cast<size_t>(i)] = widest_unit(problem_, units_, i, limit_ns_);
      if (i < states_.full() && (i == 0 || limits_[static_cast<size_t>(i)] > 0)) cover(i);
      summarise(i);
      if (i > 0) spread(i);
    }
    const Cell* best = nullptr;
    for (int free = 0; free <= (all_workers_ ? 0 : workers_); ++free) {
      const Cell& candidate = cell(0, free);
      if (candidate.exists() && (best == nullptr || candidate.cost() < best->cost()))
        best = &candidate;
    }
    if (best == nullptr) return std::nullopt;
    return read_back(static_cast<int>(best - cells_.data()));
  }

 private:
  void check_size() const {
    const double states = states_.size();
    const double places = states * states / 2 * workers_;
    if (places <= kMostStagePlaces && states * workers_ <= kMostCells) return;
    throw ConfigError(fmt::format(
        "{} cut states on {} {} are too many to place exactly (expected at most {:.0f} for "
        "states^2 / 2 * workers and "
        "{:.0f} for states * workers); {}",
        states_.size(), workers_,
        all_workers_ ? "workers that must all be used" : "workers of unequal speed or memory",
        kMostStagePlaces, kMostCells,
        all_workers_ ? "use fewer workers or another cost model" : "plan for equal devices"));
  }

  Cell& cell(int state, int free) {
    return cells_[static_cast<size_t>(state) * static_cast<size_t>(workers_ + 1) +
                  static_cast<size_t>(free)];
  }

  // Workers that the layers before a state need at least, to be fast enough for its computation.
  int least_free(int state) const {
    if (state == 0) return 0;
    const double speed =
        static_cast<double>(states_.sums(state).compute_ns) / limit_ns_ * (1 - 1e-12) - kRounding;
    const auto enough = std::lower_bound(speed_before_.begin() + 1, speed_before_.end(), speed);
    return static_cast<int>(enough - speed_before_.begin());
  }

  void cover(int i) {
    const int least_free_before = least_free(i);
    nesting_.supersets(i, supersets_);
    // Far states first where the fewest stages are wanted, near ones where any cover will do: the
    // others then bring nothing new.
    const bool far_first = wanted_ == Wanted::Best;
    const size_t first = static_cast<size_t>(i) / 64;
    for (size_t k = first; k < supersets_.size(); ++k) {
      const size_t w = far_first ? first + supersets_.size() - 1 - k : k;
      for (uint64_t left = supersets_[w] & covered_[w]; left != 0;) {
        const int bit = far_first ? 63 - std::countl_zero(left) : std::countr_zero(left);
        left &= ~(uint64_t{1} << bit);
        consider(i, static_cast<int>(w * 64) + bit, least_free_before);
      }
    }
  }

  void consider(int i, int j, int least_free_before) {
    if (j == states_.full() && i == 0 && problem_.at_least_two_stages) return;
    if (single_layers_ && counts_[static_cast<size_t>(j)] != counts_[static_cast<size_t>(i)] + 1)
      return;
    const double compute_ns =
        static_cast<double>(states_.sums(j).compute_ns - states_.sums(i).compute_ns) * (1 - 1e-12);
    const double least = std::max(1.0, std::ceil(compute_ns / limit_ns_ / fastest_ - kRounding));
    const int most_free = most_free_[static_cast<size_t>(j)];
    if (!(most_free - least >= least_free_before)) return;
    if (nothing_new(i, j, least_free_before, most_free - static_cast<int>(least))) return;
    extend(i, j, static_cast<int>(least), least_free_before);
  }

  // With all workers to be used: whether i has covers that are as good for all first workers in
  // that range.
  bool nothing_new(int i, int j, int first, int last) const {
    if (!all_workers_ || limited_ || workers_ > 63) return false;
    const uint64_t wanted = (uint64_t{2} << last) - (uint64_t{1} << first);
    if ((wanted & ~begins_[static_cast<size_t>(i)]) != 0) return false;
    return wanted_ == Wanted::Any ||
           most_stages_[static_cast<size_t>(i)] <= fewest_stages_[static_cast<size_t>(j)];
  }

  // After the covers of a state are known.
  void summarise(int state) {
    const auto s = static_cast<size_t>(state);
    fewest_stages_[s] = INT_MAX;
    for (int free = 0; free <= workers_; ++free) {
      if (cell(state, free).exists())
        fewest_stages_[s] = std::min(fewest_stages_[s], cell(state, free).stages);
    }
    if (most_free_[s] >= 0) covered_[s / 64] |= uint64_t{1} << (s % 64);
  }

  void extend(int i, int j, int least, int least_free_before) {
    const int kind_before = limits_[static_cast<size_t>(i)];
    const int kind_after = limits_[static_cast<size_t>(j)];
    for (int end = most_free_[static_cast<size_t>(j)]; end - least >= least_free_before; --end) {
      count_steps(1);
      const int begin_after =
          first_stage_[static_cast<size_t>(j) * static_cast<size_t>(workers_ + 1) +
                       static_cast<size_t>(end)];
      if (begin_after < 0) continue;
      int most = end - least_free_before;
      if (kind_after < units_.top()) most = std::min(most, units_.upto(end, kind_after));
      // The stage before must find room in the same unit.
      if (kind_before < units_.top()) most = std::min(most, units_.upto(end, kind_before) - 1);
      if (single_layers_) most = std::min(most, 1);
      place(i, j, begin_after, end, least, most);
    }
  }

  void place(int i, int j, int begin_after, int end, int least, int most) {
    const Cell& after = cell(j, begin_after);
    const Cell made{.workers = after.workers,
                    .stages = after.stages + 1,
                    .cut_bytes = j == states_.full()
                                     ? 0
                                     : saturating_add(after.cut_bytes, states_.cut_bytes(j)),
                    .end = j,
                    .place_end = end,
                    .next = begin_after};
    int below = 0;
    for (const Piece& piece : pieces_[static_cast<size_t>(end)]) {
      const int from = std::max(least, below + 1);
      const int upto = std::min(most, piece.most);
      below = piece.most;
      if (all_workers_) {
        for (int replicas = from; replicas <= upto; ++replicas)
          place_exactly(i, made, piece, replicas);
      } else if (from <= upto && place_fewest(i, made, piece, from, upto)) {
        return;
      }
      if (upto == most) return;
    }
  }

  // Without a gap every count matters. `made` lacks the stage's own replicas.
  void place_exactly(int i, Cell made, const Piece& piece, int replicas) {
    const int workers_after = made.workers;
    made.workers += replicas;
    const int begin = made.place_end - replicas;
    // A cell that is as good already needs no price.
    if (as_good(cell(i, begin), made)) return;
    const StageChoice choice =
        chooser_.fewest(i, made.end, workers_after, limit_ns_, replicas, replicas,
                        units_.level(piece.kind), piece.speed, piece.memory);
    if (choice.replicas > 0) keep(i, begin, made, choice);
  }

  // Where gaps may be left, the fewest replicas alone matter. Whether there are any.
  bool place_fewest(int i, Cell made, const Piece& piece, int from, int upto) {
    const StageChoice choice = chooser_.fewest(i, made.end, made.workers, limit_ns_, from, upto,
                                               units_.level(piece.kind), piece.speed, piece.memory);
    if (choice.replicas == 0) return false;
    made.workers += choice.replicas;
    keep(i, made.place_end - choice.replicas, made, choice);
    return true;
  }

  void keep(int i, int begin, Cell& made, const StageChoice& choice) {
    made.recompute = choice.recompute;
    Cell& target = cell(i, begin);
    if (!as_good(target, made)) {
      target = made;
      note(i, begin);
    }
    most_free_[static_cast<size_t>(i)] = std::max(most_free_[static_cast<size_t>(i)], begin);
  }

  void note(int state, int free) {
    const auto s = static_cast<size_t>(state);
    if (!all_workers_ || workers_ > 63) return;
    begins_[s] |= uint64_t{1} << free;
    most_stages_[s] = 0;
    for (uint64_t left = begins_[s]; left != 0; left &= left - 1) {
      most_stages_[s] = std::max(most_stages_[s], cell(state, std::countr_zero(left)).stages);
    }
  }

  bool as_good(const Cell& known, const Cell& made) const {
    if (!known.exists()) return false;
    if (wanted_ == Wanted::Best) return known.cost() <= made.cost();
    return !limited_ || known.workers <= made.workers;
  }

  // For every last worker of a stage before the state, the best first stage behind it that the cut
  // may reach.
  void spread(int state) {
    first_stage_.resize(cells_.size(), -1);
    int* const first =
        first_stage_.data() + static_cast<size_t>(state) * static_cast<size_t>(workers_ + 1);
    const int kind = limits_[static_cast<size_t>(state)];
    int best = -1;
    for (int end = workers_; end >= 1; --end) {
      if (all_workers_) best = -1;
      if (cell(state, end).exists() && (best < 0 || !as_good(cell(state, best), cell(state, end))))
        best = end;
      if (kind < units_.top() && units_.before(end, kind) == 0) best = -1;
      first[end] = best;
    }
    first[0] = -1;
  }

  Partition read_back(int index) {
    Partition partition;
    int state = 0;
    int free = index;
    while (state != states_.full()) {
      const Cell& made = cell(state, free);
      partition.append(made.end, {.first = free, .count = made.place_end - free}, made.recompute);
      free = made.next;
      state = made.end;
    }
    partition.bottleneck_ns = slowest_ns(problem_, partition);
    return partition;
  }

  const int workers_;
  const bool all_workers_;
  const bool single_layers_;
  std::vector<int> counts_;  ///< layers per state, for single layers
  double fastest_ = 0;
  std::vector<double> speed_before_;  ///< of the workers before one, together
  HeldBytes held_pieces_;
  std::vector<std::vector<Piece>> pieces_;  ///< per end of a stage
  /// Memory is limited somewhere, so the workers behind a stage matter.
  bool limited_ = false;

  double limit_ns_ = kNoTimeLimit;
  Wanted wanted_ = Wanted::Any;
  std::vector<Cell> cells_;  ///< per state and first worker of its cover
  /// Per state and end of the stage before: the first worker of the best cover, -1 for none.
  std::vector<int> first_stage_;
  /// Per state, the largest unit that the stages on both sides of the cut may span.
  std::vector<int> limits_;
  std::vector<int> most_free_;  ///< per state, -1 without a cover
  StateSet covered_;            ///< states with a cover
  StateSet supersets_;          ///< of the state being covered
  // With all of up to 63 workers to be used, per state: the first workers of its covers as a bit
  // set, and how many stages those have.
  std::vector<uint64_t> begins_;
  std::vector<int> most_stages_;
  std::vector<int> fewest_stages_;
};

}  // namespace

std::unique_ptr<PartitionSearch> make_table_search(const PartitionProblem& problem) {
  return std::make_unique<TableSearch>(problem);
}

}  // namespace penstock::planner
