#include "penstock/schedule/formats/pytorch_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "penstock/schedule/formats/action_parser.h"
#include "penstock/schedule/formats/pytorch_cells.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/error.h"

namespace penstock::schedule {
namespace {

using Rows = std::vector<PyTorchRow>;

/// Finds out which stages and replicas the rows hold. Row w is worker w.
class ShapeInference {
 public:
  ShapeInference(const Rows& rows, std::string_view place) : rows_(rows), place_(place) {}

  ScheduleShape infer() {
    ScheduleShape shape{.replicas = {}, .micro_batches = count_micro_batches()};
    shape.accumulate = std::max<int64_t>(shape.micro_batches, 1);
    find_parts();
    for (const auto& [stage, parts] : parts_of_) {
      if (stage != shape.num_stages())
        at(parts[0].row).fail(fmt::format("stage {} has no row", shape.num_stages()));
      shape.replicas.push_back(static_cast<int>(parts.size()));
      for (const size_t row : rows_in_turn(stage, parts))
        shape.worker_of_replica.push_back(static_cast<int>(row));
    }
    const auto is_own_index = [&](const int& worker) {
      return worker == &worker - shape.worker_of_replica.data();
    };
    if (std::all_of(shape.worker_of_replica.begin(), shape.worker_of_replica.end(), is_own_index))
      shape.worker_of_replica.clear();
    try {
      validate(shape);
    } catch (const ConfigError& error) {
      at(fullest_row_).fail(error.what());
    }
    return shape;
  }

 private:
  /// The part of a stage that one row runs.
  struct Part {
    size_t row;
    int64_t first;  ///< one of its micro-batches of the stage
    /// Largest number that divides the distances between its micro-batches, 0 when there is only
    /// one.
    int64_t stride = 0;
  };

  TextPlace at(size_t row) const { return {place_, rows_[row].line}; }

  int64_t count_micro_batches() {
    int64_t count = 0;
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (const Action& action : rows_[r].actions) {
        if (action.micro_batch.value < count) continue;
        if (action.micro_batch.value >= kMaxActions) {
          at(r).fail(fmt::format("micro-batch {} is beyond the supported {} actions",
                                 action.micro_batch.value, kMaxActions));
        }
        count = action.micro_batch.value + 1;
        fullest_row_ = r;
      }
    }
    return count;
  }

  void find_parts() {
    for (size_t r = 0; r < rows_.size(); ++r) {
      Part* part = nullptr;
      StageId stage{-1};
      for (const Action& action : rows_[r].actions) {
        if (action.op == Op::SyncGradients) continue;
        if (action.stage != stage) {
          stage = action.stage;
          std::vector<Part>& parts = parts_of_[stage.value];
          if (parts.empty() || parts.back().row != r)
            parts.push_back({r, action.micro_batch.value});
          part = &parts.back();
        }
        part->stride = std::gcd(part->stride, action.micro_batch.value - part->first);
      }
    }
  }

  /// The rows that hold a stage, as replicas 0, 1, ...; refuses ambiguous rows.
  std::vector<size_t> rows_in_turn(int32_t stage, const std::vector<Part>& parts) const {
    const auto count = static_cast<int64_t>(parts.size());
    std::vector<size_t> in_turn(parts.size(), rows_.size());
    for (const Part& part : parts) {
      if (part.stride % count != 0) {
        at(part.row).fail(
            fmt::format("stage {} is in {} rows; replicas take turns, so that a row's "
                        "micro-batches of it should differ by multiples of {}, found {}",
                        stage, count, count, part.stride));
      }
      size_t& replica = in_turn[static_cast<size_t>(part.first % count)];
      if (replica != rows_.size()) {
        at(part.row).fail(fmt::format(
            "stage {} is in {} rows; replicas take turns, but this row has the turn of line {}",
            stage, count, rows_[replica].line));
      }
      replica = part.row;
    }
    return in_turn;
  }

  const Rows& rows_;
  std::string_view place_;
  std::map<int32_t, std::vector<Part>> parts_of_;  ///< by stage
  size_t fullest_row_ = 0;
};

bool has_any(const Rows& rows, bool (*fits)(const Action&)) {
  return std::any_of(rows.begin(), rows.end(), [&](const PyTorchRow& row) {
    return std::any_of(row.actions.begin(), row.actions.end(), fits);
  });
}

bool is_replicated(const ScheduleShape& shape, StageId stage) {
  return stage.value < shape.num_stages() && shape.replicas[stage.index()] > 1;
}

/// Leaves out the SYNCs that do nothing: of stages without replicas, and all of them where nothing
/// is trained. Returns how many.
int64_t drop_syncs(Schedule& schedule, bool trains) {
  int64_t dropped = 0;
  for (auto& list : schedule.workers) {
    dropped += static_cast<int64_t>(std::erase_if(list, [&](const Action& a) {
      return a.op == Op::SyncGradients && !(trains && is_replicated(schedule.shape, a.stage));
    }));
  }
  return dropped;
}

/// Whether any micro-batch goes from one worker to another.
bool needs_messages(const ScheduleShape& shape) {
  const WorkerTable table(shape);
  for (int32_t s = 1; s < shape.num_stages(); ++s) {
    for (int64_t b = 0; b < shape.micro_batches; ++b) {
      if (table.worker_of(StageId{s - 1}, MicroBatchId{b}) !=
          table.worker_of(StageId{s}, MicroBatchId{b}))
        return true;
    }
  }
  return false;
}

/// Version 0 throughout and, if the schedule trains, one step at the end of each list: what flush
/// means for a single mini-batch.
void add_steps(Schedule& schedule, bool trains) {
  const WorkerTable table(schedule.shape);
  for (size_t w = 0; w < schedule.workers.size(); ++w) {
    auto& list = schedule.workers[w];
    std::vector<StageId> synced;
    for (Action& action : list) {
      if (is_compute(action.op)) action.version = WeightVersion{0};
      if (action.op == Op::SyncGradients) synced.push_back(action.stage);
    }
    if (!trains) continue;
    std::sort(synced.begin(), synced.end());
    const auto append = [&](Op op, StageId stage, int64_t version) {
      list.push_back({.op = op,
                      .stage = stage,
                      .micro_batch = {},
                      .mini_batch = {},
                      .peer = stage,
                      .version = WeightVersion{version}});
    };
    const auto held = table.held_by(WorkerId{static_cast<int32_t>(w)});
    for (const WorkerTable::Held& each : held) {
      const bool is_synced = std::binary_search(synced.begin(), synced.end(), each.stage);
      if (table.replicas(each.stage) > 1 && !is_synced) append(Op::SyncGradients, each.stage, -1);
    }
    for (const WorkerTable::Held& each : held) {
      append(Op::FreeWeights, each.stage, 0);
      append(Op::Step, each.stage, 0);
    }
  }
}

/// What a receive brings data for: the F, or the B or I, of a stage and micro-batch.
using Use = std::tuple<bool, StageId, MicroBatchId>;

/// PyTorch's receive does not wait, the computation that needs its data does: receives go directly
/// before that. Those behind it stay, for the verifier to find. Returns how many it moved.
int64_t wait_where_used(std::vector<Action>& list) {
  std::map<Use, std::vector<Action>> posted;
  std::map<Use, size_t> place_of_use;
  for (size_t i = 0; i < list.size(); ++i) {
    const Action& a = list[i];
    if (a.op == Op::Forward || makes_input_gradients(a.op))
      place_of_use.try_emplace({a.op == Op::Forward, a.stage, a.micro_batch}, i);
  }
  std::vector<Action> result;
  result.reserve(list.size());
  // By place: the next one that does not receive.
  std::vector<size_t> next(list.size() + 1, list.size());
  for (size_t i = list.size(); i-- > 0;) next[i] = is_receive(list[i].op) ? next[i + 1] : i;
  int64_t moved = 0;
  const auto wait_for = [&](const Use& use) {
    const auto found = posted.find(use);
    if (found == posted.end()) return;
    result.insert(result.end(), found->second.begin(), found->second.end());
    posted.erase(found);
  };
  for (size_t i = 0; i < list.size(); ++i) {
    const Action& a = list[i];
    const Use use{a.op == Op::Forward || a.op == Op::RecvForward, a.stage, a.micro_batch};
    if (is_receive(a.op)) {
      const auto found = place_of_use.find(use);
      if (found != place_of_use.end() && found->second > i) {
        posted[use].push_back(a);
        const bool is_beside = list[next[i]].with_next && next[i] + 1 == found->second;
        if (next[i] != found->second && !is_beside) ++moved;
        continue;
      }
    } else if (a.op == Op::Forward || makes_input_gradients(a.op)) {
      wait_for(use);
      // What runs with it waits at the same place.
      if (a.with_next) wait_for({false, list[i + 1].stage, list[i + 1].micro_batch});
    }
    result.push_back(a);
  }
  list = std::move(result);
  return moved;
}

/// In a lowered list: what the actions of an overlap that is no pair send goes behind the last of
/// them, as PyTorch does it.
void send_after_overlaps(std::vector<Action>& list, const std::vector<Action>& cells,
                         const std::vector<std::pair<size_t, size_t>>& overlaps) {
  using Compute = std::tuple<Op, StageId, MicroBatchId>;
  std::map<Compute, bool> is_last;
  for (const auto& [begin, end] : overlaps) {
    for (size_t i = begin; i < end; ++i)
      is_last.emplace(Compute{cells[i].op, cells[i].stage, cells[i].micro_batch}, i + 1 == end);
  }
  std::vector<Action> result;
  std::vector<Action> sends;
  bool inside = false;
  result.reserve(list.size());
  for (const Action& action : list) {
    if (is_send(action.op) && inside) {
      sends.push_back(action);
      continue;
    }
    result.push_back(action);
    if (!is_compute(action.op)) continue;
    const auto found = is_last.find({action.op, action.stage, action.micro_batch});
    inside = found != is_last.end() && !found->second;
    if (inside) continue;
    result.insert(result.end(), sends.begin(), sends.end());
    sends.clear();
  }
  result.insert(result.end(), sends.begin(), sends.end());
  list = std::move(result);
}

std::vector<std::string> notes_of(const PyTorchCells& cells) {
  std::vector<std::string> notes;
  if (cells.first_empty_line > 0) {
    notes.push_back(
        fmt::format("line {} holds no action and is no worker; the rows below count one less",
                    cells.first_empty_line));
  }
  if (cells.shards > 0)
    notes.push_back(fmt::format("left out {} UNSHARD and RESHARD: parameters are not sharded here",
                                cells.shards));
  if (cells.waits > 0) {
    notes.push_back(
        fmt::format("left out {} WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD: a send ends by "
                    "itself here, and a sum where it stands",
                    cells.waits));
    if (cells.sends_without_wait > 0)
      notes.push_back(fmt::format("PyTorch refuses the file: {} sends have no WAIT_SEND",
                                  cells.sends_without_wait));
  }
  int64_t overlaps = 0;
  for (const PyTorchRow& row : cells.rows) overlaps += static_cast<int64_t>(row.overlaps.size());
  if (overlaps > 0) {
    notes.push_back(fmt::format(
        "read {} OVERLAP_F_B that are no F with a B or I of another micro-batch as their "
        "actions one after the other, what they send behind the last",
        overlaps));
  }
  if (has_any(cells.rows, [](const Action& a) { return a.op == Op::BackwardWeight; }) &&
      !has_any(cells.rows, [](const Action& a) { return a.op == Op::BackwardInput; })) {
    notes.push_back(
        "there is W but no I: PyTorch 2.5 wrote B for what is I now; rename it if this file is as "
        "old");
  }
  return notes;
}

}  // namespace

ParsedCsv parse_pytorch_csv(std::string_view text, std::string_view place) {
  PyTorchCells cells = read_pytorch_cells(text, place);
  const bool trains =
      has_any(cells.rows, [](const Action& a) { return makes_weight_gradients(a.op); });
  ParsedCsv parsed;
  parsed.notes = notes_of(cells);
  Schedule& schedule = parsed.schedule;
  schedule = {.kind = "custom", .shape = ShapeInference(cells.rows, place).infer(), .workers = {}};
  for (const PyTorchRow& row : cells.rows) schedule.workers.push_back(row.actions);
  if (const int64_t dropped = drop_syncs(schedule, trains); dropped > 0) {
    parsed.notes.push_back(
        fmt::format("left out {} REDUCE_GRAD of stages without replicas", dropped));
  }
  const auto any = [&](auto fits) {
    return std::any_of(schedule.workers.begin(), schedule.workers.end(), [&](const auto& list) {
      return std::any_of(list.begin(), list.end(), fits);
    });
  };
  const bool has_messages =
      any([](const Action& a) { return !is_compute(a.op) && a.op != Op::SyncGradients; });
  const bool has_syncs = any([](const Action& a) { return a.op == Op::SyncGradients; });
  schedule.lowered = has_messages || (has_syncs && !needs_messages(schedule.shape));
  int64_t moved = 0;
  for (auto& list : schedule.workers) moved += wait_where_used(list);
  if (moved > 0) {
    parsed.notes.push_back(fmt::format(
        "{} receives wait where their data is used: PyTorch only posts them where they stand",
        moved));
  }
  if (schedule.lowered) {
    add_steps(schedule, trains);
  } else if (has_syncs) {
    for (auto& list : schedule.workers)
      std::erase_if(list, [](const Action& a) { return a.op == Op::SyncGradients; });
    parsed.notes.push_back(
        "left out REDUCE_GRAD: there are no sends and receives; where those are added, so are the "
        "sums of gradients");
  }
  const bool overlaps = std::any_of(cells.rows.begin(), cells.rows.end(),
                                    [](const PyTorchRow& row) { return !row.overlaps.empty(); });
  if (!schedule.lowered && overlaps && needs_messages(schedule.shape)) {
    schedule = lower(schedule, chain_links(schedule.shape.num_stages()));
    for (size_t w = 0; w < cells.rows.size(); ++w)
      send_after_overlaps(schedule.workers[w], cells.rows[w].actions, cells.rows[w].overlaps);
  }
  return parsed;
}

}  // namespace penstock::schedule
