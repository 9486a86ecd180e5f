#include "penstock/runtime/run_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "penstock/model/says_next_step.h"
#include "penstock/plan/compensation.h"
#include "penstock/runtime/schedule_fit.h"
#include "penstock/runtime/stages.h"
#include "penstock/schedule/team_places.h"
#include "penstock/util/error.h"

namespace penstock::runtime {

using schedule::Schedule;
using schedule::ScheduleShape;

namespace {

/// The workers of the replicas, spelled out.
std::vector<int> spelled_out(const std::vector<int>& worker_of_replica,
                             const std::vector<int>& replicas) {
  if (!worker_of_replica.empty()) return worker_of_replica;
  std::vector<int> result(
      static_cast<size_t>(std::accumulate(replicas.begin(), replicas.end(), 0)));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

void check_shape(const Stages& stages, const Schedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  if (shape.replicas != stages.counts || schedule.workers.size() != stages.held_by.size()) {
    throw ConfigError(fmt::format(
        "the schedule is for {} stages on {} workers, the pipeline has {} stages on {} workers",
        shape.num_stages(), schedule.workers.size(), stages.size(), stages.held_by.size()));
  }
  const std::vector<int> theirs = spelled_out(shape.worker_of_replica, stages.counts);
  const std::vector<int> ours = spelled_out(stages.options.worker_of_replica, stages.counts);
  if (theirs != ours) {
    throw ConfigError(fmt::format("the schedule puts the stages on workers {}, the pipeline on {}",
                                  fmt::join(theirs, " "), fmt::join(ours, " ")));
  }
}

/// The schedule's teams are those of the model's parts.
void check_teams(const Stages& stages, const Schedule& schedule, const RunOptions& options) {
  const schedule::TeamPlaces places(schedule.shape.teams);
  for (size_t s = 0; s < stages.size(); ++s) {
    const schedule::TeamPlace theirs = places.of(StageId{static_cast<int32_t>(s)});
    const schedule::TeamPlace& ours = stages.teams[s];
    if (theirs == ours) continue;
    throw ConfigError(fmt::format(
        "stage {} is member {} of {} in the schedule's team, and member {} of {} in the model's: "
        "expected a schedule with the model's teams (schedule::with_teams)",
        s, theirs.member, theirs.size, ours.member, ours.size));
  }
  if (stages.model.whole() != nullptr && options.carried_places > 0) {
    throw ConfigError(
        "states that go on from text to text are not carried in teams: expected a plan without "
        "teams, or samples that begin with zeros");
  }
  if (stages.model.whole() != nullptr && options.on_layer) {
    throw ConfigError(
        "what layers read is looked at where they are whole (such as for the coverage of decoded "
        "texts), and members of a team have parts: expected a plan without teams");
  }
}

void check_float16(const PipelineOptions& options, const ScheduleShape& shape) {
  if (!shape.global_norm) {
    throw ConfigError(
        "float16 leaves out steps whose gradients are not finite, which all workers have to know: "
        "it needs a schedule with NORM (global_norm in its shape)");
  }
  if (steps_alone(options.sync)) {
    throw ConfigError(fmt::format(
        "float16 leaves out steps, and replicas under the synchronisation {} step each by itself: "
        "expected another way to sum, or bfloat16",
        to_string(options.sync)));
  }
  if (options.sync == plan::GradientSync::PowerSgd) {
    throw ConfigError(
        "float16 leaves out steps, and under the synchronisation powersgd what a step leaves out "
        "goes into the next one: expected another way to sum, or bfloat16");
  }
  if (shape.policy == schedule::WeightPolicy::Current) {
    throw ConfigError(
        "in float16 each micro-batch has a loss scale of its own, and under weights current its "
        "backward pass goes through another micro-batch: expected another weight policy, or "
        "bfloat16");
  }
}

/// What the schedule alone does not say.
void check_compensation(const Stages& stages, const ScheduleShape& shape) {
  const schedule::Compensation compensation = shape.compensation;
  if (compensation == schedule::Compensation::None) return;
  if (steps_alone(stages.options.sync)) {
    throw ConfigError(
        fmt::format("compensation {} needs the steps of one optimiser, and replicas under the "
                    "synchronisation {} step by themselves: expected another way to sum",
                    to_string(compensation), to_string(stages.options.sync)));
  }
  const model::OptimizerSpec& spec = stages.optimizer.spec();
  const plan::CompensationTraits& row = traits(compensation);
  if (row.asks_next_step && !says_next_step(spec)) {
    throw ConfigError(fmt::format(
        "compensation {} needs the optimiser's next step, which the state of {} does not say: "
        "expected one of {}",
        row.name, to_string(spec.kind), model::next_step_names()));
  }
  if (row.keeps_mean_step && !spec.mean_step) {
    throw ConfigError(
        fmt::format("compensation {} needs an optimiser that keeps a running mean of its steps "
                    "(OptimizerSpec::mean_step)",
                    row.name));
  }
  if (row.ahead == nullptr) return;
  for (size_t s = 0; s < stages.counts.size(); ++s) {
    const std::string refusal = compensation_refusal(
        compensation,
        plan::CompensatedStage{.stage = static_cast<int32_t>(s),
                               .state_parts = stages.shares_state(s) ? stages.counts[s] : 1});
    if (!refusal.empty()) throw ConfigError(refusal);
  }
}

void check_training(const Stages& stages, const ScheduleShape& shape, const RunOptions& options) {
  if (!options.learning_rate) throw ConfigError("a training run needs a learning rate");
  if (options.max_grad_norm > 0 && !shape.global_norm) {
    throw ConfigError(
        "clipping by the global norm needs a schedule with NORM (global_norm in its shape)");
  }
  if (stages.options.flushes && shape.policy != schedule::WeightPolicy::Flush) {
    throw ConfigError(
        fmt::format("the pipeline was made for runs that flush, found the weight policy {}",
                    to_string(shape.policy)));
  }
  check_compensation(stages, shape);
  if (stages.has_rounds() && shape.global_norm) {
    throw ConfigError(
        "NORM adds over all workers, for clipping or for weights that stages share, and replicas "
        "under the synchronisation diloco step by themselves: expected neither, or another way to "
        "sum");
  }
  if (scales_loss(stages.options.precision)) check_float16(stages.options, shape);
  if (stages.ties.groups.empty()) return;
  if (!shape.global_norm || shape.policy != schedule::WeightPolicy::Flush) {
    throw ConfigError(
        fmt::format("stages of '{}' share weights, whose gradients are added up before each step: "
                    "that needs the weight policy flush (such as the strategy 1f1b-flush) and a "
                    "schedule with NORM",
                    stages.model.name()));
  }
}

/// Each micro-batch meets the states of the one before it in its place: on its replica, and in
/// time.
void check_carried(const Stages& stages, const Schedule& schedule, int64_t places) {
  if (places < 0)
    throw ConfigError(fmt::format("carried places: expected 0 or more, found {}", places));
  for (size_t s = 0; s < stages.size(); ++s) {
    if (places == 0 || !stages.modules[s]->carries() || places % stages.counts[s] == 0) continue;
    throw ConfigError(
        fmt::format("stage {} has {} replicas, which take turns: to carry states, expected a "
                    "multiple of them as micro-batches of a step, or a plan without replicas, "
                    "found {}",
                    s, stages.counts[s], places));
  }
  if (places == 0) return;
  std::map<std::pair<StageId, int64_t>, MicroBatchId> last;
  for (const auto& actions : schedule.workers) {
    for (const schedule::Action& action : actions) {
      if (action.op != schedule::Op::Forward) continue;
      const auto [entry, is_new] =
          last.try_emplace({action.stage, action.micro_batch.value % places}, action.micro_batch);
      if (!is_new && action.micro_batch < entry->second) {
        throw ConfigError(fmt::format(
            "stage {} runs micro-batch {} after {}, whose samples go on with its texts: to carry "
            "states, expected a schedule in the order of the text",
            action.stage.value, action.micro_batch.value, entry->second.value));
      }
      entry->second = action.micro_batch;
    }
  }
}

}  // namespace

void check_run(const Stages& stages, const std::vector<schedule::StageLink>& links,
               const Schedule& schedule, const RunOptions& options) {
  check_shape(stages, schedule);
  if (!schedule.lowered)
    throw ConfigError("the schedule has no messages and steps yet: lower() it first");
  check_messages(schedule, links);
  check_teams(stages, schedule, options);
  check_carried(stages, schedule, options.carried_places);
  if (trains(schedule)) check_training(stages, schedule.shape, options);
}

void check_endless(const Stages& stages, const schedule::EndlessSchedule& schedule) {
  const ScheduleShape& shape = schedule.lists.shape();
  if (stages.world->site().num_ranks() > 1)
    throw ConfigError("an endless run takes one process, found several ranks");
  if (stages.model.whole() != nullptr)
    throw ConfigError("an endless run takes whole layers, found a model for teams");
  if (shape.compensation != schedule::Compensation::None) {
    throw ConfigError(
        fmt::format("an endless run learns with its delays as they are: expected the "
                    "compensation none, found {}",
                    to_string(shape.compensation)));
  }
  if (shape.accumulate != 1 || shape.num_workers() != shape.num_stages()) {
    throw ConfigError(fmt::format(
        "an endless run takes one micro-batch per step and one worker per stage, found {} and {} "
        "workers for {} stages",
        shape.accumulate, shape.num_workers(), shape.num_stages()));
  }
  for (const auto& module : stages.modules) {
    const bool reads_input = std::any_of(module->inputs().begin(), module->inputs().end(),
                                         [](const auto& ref) { return ref.is_model_input(); });
    if (reads_input == module->source_stages().empty()) continue;
    throw ConfigError(
        fmt::format("an endless run needs one first stage that reads the frames; stage {} {}",
                    module->stage().value,
                    reads_input ? "reads them and another stage's outputs" : "has no inputs"));
  }
}

}  // namespace penstock::runtime
