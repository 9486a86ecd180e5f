// The schedules of torch.optim.lr_scheduler that are functions of the step, by their names there
// and with their arguments; one after the other (SequentialLR) and multiplied (ChainedScheduler).
//
//   RateSchedule schedule =
//   parse_rate_schedule("LinearLR,total_iters=4@4:ExponentialLR,gamma=0.9"); rate_of(schedule,
//   {.base = 0.1, .step = 7, .total_steps = 100});
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::train {

struct RateMoment {
  double base = 0;          ///< the learning rate of the run
  int64_t step = 0;         ///< from 0
  int64_t total_steps = 0;  ///< of the run, where a schedule has no length of its own
};

/// An argument of a schedule.
struct RateKey {
  enum class Form : uint8_t { Number, Whole, Word, Steps };
  std::string_view name;
  double usual = 0;  ///< NaN: it is the run's, or follows from others
  double lowest = 0;
  double highest = 1e18;
  Form form = Form::Number;
  bool is_needed = false;
  std::string_view words = {};  ///< of a Word, with '|' between them: 0, 1, ...
};

/// The schedule that follows evaluations (plateau.h).
inline constexpr std::string_view kPlateauName = "ReduceLROnPlateau";

inline constexpr size_t kMostRateKeys = 9;

struct RateRow;
/// A schedule with its arguments.
struct RatePart {
  const RateRow* row = nullptr;
  std::array<double, kMostRateKeys> values = {};  ///< in the order of the row's keys
  std::vector<int64_t> milestones = {};           ///< of MultiStepLR, ascending
};

struct RateRow {
  std::string_view name;  ///< the class
  std::vector<RateKey> keys;
  double (*rate)(const RatePart& part, const RateMoment& moment) = nullptr;
  bool is_factor = true;  ///< times the rate of the run, so that several can be multiplied
  /// The optimiser's momentum of the step; null: the schedule leaves it alone.
  double (*momentum)(const RatePart& part, const RateMoment& moment) = nullptr;
};

/// Schedules that are multiplied, from step `from` on, which is their step 0.
struct RatePhase {
  int64_t from = 0;
  std::vector<RatePart> parts = {};
};
/// Phases ascend; the first is from step 0 on.
using RateSchedule = std::vector<RatePhase>;

/// "A", "A*B" (multiplied), "A@STEP:B" (B from that step on). A and B: NAME,KEY=VALUE,...; steps of
/// MultiStepLR have ':' between them. Throws ConfigError naming what was expected.
RateSchedule parse_rate_schedule(const std::string& text);

/// Equal to PyTorch's at every step of its length; OneCycleLR stays at its last rate after it.
double rate_of(const RateSchedule& schedule, const RateMoment& moment);

/// What the optimiser does about a momentum that the schedule has (cycle_momentum).
enum class CyclesMomentum : uint8_t {
  WhereItHasOne,  ///< not said: with optimisers that have a momentum
  Always,         ///< it must have one
  Never
};
CyclesMomentum cycles_momentum(const RateSchedule& schedule);
/// The momentum of the step (or beta1), as PyTorch's OneCycleLR and CyclicLR set it; nothing: the
/// optimiser's own.
std::optional<double> momentum_of(const RateSchedule& schedule, const RateMoment& moment);

/// "StepLR, MultiStepLR, ... or ReduceLROnPlateau"
std::string rate_schedule_names();

}  // namespace penstock::train
