// One question, asked again and again by the partitioner: is there a partition whose stages and
// cuts all take at most a given time? Internal to the planner.
//
//   auto search = make_search(problem);  // make_search.h
//   if (auto partition = search->within(1e6, Wanted::Any)) ...
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "penstock/planner/cuts/nesting.h"
#include "penstock/planner/partition.h"
#include "penstock/planner/partition/placement_units.h"

namespace penstock::planner {

inline constexpr double kNoTimeLimit = std::numeric_limits<double>::infinity();

/// Any partition, or the best one by the tie-breaks of best_partition().
enum class Wanted : uint8_t { Any, Best };

class PartitionSearch {
 public:
  virtual ~PartitionSearch() = default;
  /// Exact: nothing only when there is none. The problem's memory limit may be changed between
  /// calls. Throws SearchEnded; then the search cannot be used again.
  virtual std::optional<Partition> within(double limit_ns, Wanted wanted) = 0;
};

/// Whether every stage must be a single layer on a single worker: straight, with workers to spare.
bool single_layers(const PartitionProblem& problem);
/// Layers in each state.
std::vector<int> layer_counts(const CutStates& states);

/// The largest kind of unit that the stages on both sides of the cut after `state` may span within
/// the time; 0 where the model cannot be cut there. All units at both ends of the model.
int widest_unit(const PartitionProblem& problem, const Units& units, int state, double limit_ns);

/// The slowest stage or cut, with the problem's micro-batches per step.
double slowest_ns(const PartitionProblem& problem, const Partition& partition);
/// Built from the output end, a partition leaves idle workers in front: moves it forward by whole
/// units where it costs nothing, since they are better left at the end.
void move_forward(const PartitionProblem& problem, const Units& units, Partition& partition);
/// The most that a worker needs.
int64_t needed_bytes(const PartitionProblem& problem, const Partition& partition);

/// Replicas of a stage, and whether it recomputes its activations; none when replicas is 0.
struct StageChoice {
  int replicas = 0;
  bool recompute = false;
};

/// What workers of one kind of device can do with a stage.
class StageChooser {
 public:
  explicit StageChooser(const PartitionProblem& problem) : problem_(problem) {}

  /// The memory limit of a worker with that device, 0 for none.
  int64_t memory_limit(const cluster::Device& device) const {
    return problem_.memory.limit_bytes > 0 ? problem_.memory.limit_bytes : device.memory_bytes;
  }

  /// The fewest replicas in [least, most] that keep stage (i, j) within the time and the memory,
  /// without recomputation where that takes no more of them. `level` is the one that up to `most`
  /// replicas span.
  StageChoice fewest(int i, int j, int workers_after, double limit_ns, int least, int most,
                     int level, double speed, int64_t memory) const {
    if (problem_.recompute == Choice::Always)
      return {fewest_with(i, j, true, workers_after, limit_ns, least, most, level, speed, memory),
              true};
    StageChoice choice{
        fewest_with(i, j, false, workers_after, limit_ns, least, most, level, speed, memory),
        false};
    // Recomputation only ever costs time, so it can help where memory is short alone.
    if (problem_.recompute == Choice::Never || memory <= 0 || choice.replicas == least)
      return choice;
    const int fewer = choice.replicas == 0 ? most : choice.replicas - 1;
    const int recomputing =
        fewest_with(i, j, true, workers_after, limit_ns, least, fewer, level, speed, memory);
    return recomputing > 0 ? StageChoice{recomputing, true} : choice;
  }

  SegmentCost segment(int i, int j, bool recompute, double speed) const {
    return on_device(problem_.states.segment(i, j, recompute), speed);
  }

 private:
  int fewest_with(int i, int j, bool recompute, int workers_after, double limit_ns, int least,
                  int most, int level, double speed, int64_t memory) const {
    const SegmentCost cost = segment(i, j, recompute, speed);
    int replicas = problem_.model.fewest_replicas(cost, limit_ns, least, most, level,
                                                  problem_.memory.micro_batches);
    if (memory <= 0 || replicas == 0) return replicas;
    const StageMemory kept = stage_memory(problem_.states, i, j, recompute);
    while (replicas > 0) {
      const int fitting =
          problem_.memory.fewest_replicas(kept, workers_after, replicas, most, memory);
      if (fitting == replicas || fitting == 0) return fitting;
      replicas = problem_.model.fewest_replicas(cost, limit_ns, fitting, most, level,
                                                problem_.memory.micro_batches);
    }
    return 0;
  }

  const PartitionProblem& problem_;
};

/// What the searches over all cut states know of their problem.
class StateSearch : public PartitionSearch {
 protected:
  /// Keeps a reference.
  explicit StateSearch(const PartitionProblem& problem)
      : problem_(problem),
        states_(problem.states),
        chooser_(problem),
        units_(problem.model.topology(), problem.workers),
        counted_(problem.budget),
        nesting_(counting(problem, counted_), problem.time) {
    counted_.set(nesting_.bytes());
  }

  /// Looks at the clock after many of them; a step takes some nanoseconds. Throws OutOfTime.
  void count_steps(int64_t steps) const {
    if ((steps_ += steps) < kStepsPerLook) return;
    steps_ = 0;
    problem_.time.check();
  }

  const PartitionProblem& problem_;
  const CutStates& states_;
  const StageChooser chooser_;
  const Units units_;
  HeldBytes counted_;  ///< the tables by state; labels and cells have their own
  const Nesting nesting_;

 private:
  static constexpr int64_t kStepsPerLook = 1'000'000;

  static const CutStates& counting(const PartitionProblem& problem, HeldBytes& held) {
    held.set(Nesting::bytes_of(problem.states.size(), problem.states.num_classes()));
    return problem.states;
  }

  mutable int64_t steps_ = 0;
};

}  // namespace penstock::planner
