#include "penstock/schedule/pytorch_csv.h"

#include <fmt/format.h>

#include <algorithm>

#include "penstock/schedule/action_parser.h"
#include "penstock/schedule/text_format.h"
#include "penstock/schedule/text_lines.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

struct Row {
  int64_t line = 0;
  std::vector<Action> actions;

  StageId stage() const { return actions.front().stage; }
};

std::vector<Row> read_rows(std::string_view text, std::string_view place) {
  std::vector<Row> rows;
  int64_t budget = kMaxActions;
  for (TextLines lines(text); lines.next();) {
    if (lines.line().starts_with('#')) continue;
    const TextPlace here{place, lines.number()};
    Row row{lines.number(), parse_actions(lines.line(), here, budget)};
    if (row.actions.empty()) continue;
    budget -= static_cast<int64_t>(row.actions.size());
    for (const Action& action : row.actions) {
      if (action.stage != row.stage()) {
        here.fail(fmt::format("the row holds actions of stages {} and {}; several stages on one worker are not supported yet",
                              row.stage().value, action.stage.value));
      }
      if (!is_compute(action.op) && !is_message(action.op)) {
        here.fail(fmt::format("{} needs the header of a penstock schedule ('# penstock schedule 1')", to_text(action)));
      }
      if (action.version.value >= 0) {
        here.fail(fmt::format("{}: weight versions need the header of a penstock schedule ('# penstock schedule 1')", to_text(action)));
      }
    }
    rows.push_back(std::move(row));
  }
  if (rows.empty()) throw ParseError(place, 0, "expected a schedule, found no action");
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.stage() < b.stage(); });
  return rows;
}

ScheduleShape infer_shape(const std::vector<Row>& rows, std::string_view place) {
  ScheduleShape shape{.replicas = {}, .micro_batches = 0};
  for (const Row& row : rows) {
    const int32_t stage = row.stage().value;
    if (stage > shape.num_stages()) TextPlace{place, row.line}.fail(fmt::format("stage {} has no row", shape.num_stages()));
    if (stage == shape.num_stages()) shape.replicas.push_back(0);
    ++shape.replicas.back();
    for (const Action& action : row.actions) {
      if (action.micro_batch.value >= kMaxActions) {
        TextPlace{place, row.line}.fail(
            fmt::format("micro-batch {} is beyond the supported {} actions", action.micro_batch.value, kMaxActions));
      }
      shape.micro_batches = std::max(shape.micro_batches, action.micro_batch.value + 1);
    }
  }
  shape.accumulate = std::max<int64_t>(shape.micro_batches, 1);
  return shape;
}

/// Version 0 throughout and one step at the end of each list: what flush means for a single mini-batch.
void add_step(Schedule& schedule) {
  const auto has_backward = [](const std::vector<Action>& list) {
    return std::any_of(list.begin(), list.end(), [](const Action& a) { return a.op == Op::Backward; });
  };
  const bool trains = std::any_of(schedule.workers.begin(), schedule.workers.end(), has_backward);
  for (auto& list : schedule.workers) {
    const StageId stage = list.front().stage;
    for (Action& action : list) {
      if (is_compute(action.op)) action.version = WeightVersion{0};
    }
    if (!trains) continue;
    Action action{.op = Op::SyncGradients, .stage = stage, .micro_batch = {}, .mini_batch = {}, .peer = stage};
    if (schedule.shape.replicas[stage.index()] > 1) list.push_back(action);
    action.version = WeightVersion{0};
    for (const Op op : {Op::FreeWeights, Op::Step}) {
      action.op = op;
      list.push_back(action);
    }
  }
}

}  // namespace

Schedule parse_pytorch_csv(std::string_view text, std::string_view place) {
  std::vector<Row> rows = read_rows(text, place);
  Schedule schedule{.kind = "custom", .shape = infer_shape(rows, place), .workers = {}};
  for (Row& row : rows) {
    schedule.lowered =
        schedule.lowered || std::any_of(row.actions.begin(), row.actions.end(), [](const Action& a) { return is_message(a.op); });
    schedule.workers.push_back(std::move(row.actions));
  }
  if (schedule.lowered) add_step(schedule);
  return schedule;
}

}  // namespace penstock::schedule
