#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "penstock/plan/weight_rules.h"
#include "penstock/schedule/formats/pytorch_csv.h"
#include "penstock/schedule/formats/text_format.h"
#include "penstock/util/error.h"
#include "penstock/util/text/quoted.h"

namespace penstock::schedule {
namespace {

void check_shape(const ScheduleShape& shape) {
  validate(shape);
  if (!traits(shape.policy).drains) {
    throw ConfigError(fmt::format(
        "PyTorch's CSV has one version of the weights: expected weight policy flush, found {}",
        to_string(shape.policy)));
  }
  if (shape.num_mini_batches() > 1) {
    throw ConfigError(
        fmt::format("PyTorch's CSV describes one optimiser step, the schedule has {}; let it "
                    "accumulate all {} micro-batches",
                    shape.num_mini_batches(), shape.micro_batches));
  }
  if (!shape.teams.empty())
    throw ConfigError(
        "PyTorch's CSV knows whole stages only: expected a schedule without teams (tensor "
        "parallelism)");
  for (int s = 0; s < shape.num_stages(); ++s) {
    const int count = shape.replicas[static_cast<size_t>(s)];
    if (count <= shape.micro_batches) continue;
    throw ConfigError(
        fmt::format("PyTorch's CSV shows replicas by their micro-batches: stage {} has {} "
                    "replicas, the schedule {} micro-batches",
                    s, count, shape.micro_batches));
  }
  const auto recomputing = std::find(shape.recompute.begin(), shape.recompute.end(), true);
  if (recomputing != shape.recompute.end()) {
    throw ConfigError(fmt::format("PyTorch's CSV has no recomputation, stage {} recomputes",
                                  recomputing - shape.recompute.begin()));
  }
}

bool has_any(const Schedule& schedule, bool (*fits)(Op)) {
  return std::any_of(schedule.workers.begin(), schedule.workers.end(), [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const Action& a) { return fits(a.op); });
  });
}

/// Only by B or W can a reader see that gradients are summed.
void check_sums(const Schedule& schedule) {
  if (has_any(schedule, [](Op op) { return op == Op::SyncGradients; }) &&
      !has_any(schedule, makes_weight_gradients)) {
    throw ConfigError(
        "PyTorch's CSV: expected gradients of weights where they are summed (SYNC), found neither "
        "B nor W");
  }
}

/// The stage that a message goes to or comes from in a chain.
int32_t neighbour(const Action& action) {
  return action.stage.value +
         (action.op == Op::SendForward || action.op == Op::RecvBackward ? 1 : -1);
}

class RowWriter {
 public:
  RowWriter(const ScheduleShape& shape, PyTorchForm form, std::string& text)
      : shape_(shape), has_waits_(form == PyTorchForm::From215), text_(text) {}

  void write(size_t worker, const std::vector<Action>& list) {
    const size_t begin = text_.size();
    ListText written(text_);
    for (const Action& action : list) {
      if (action.op == Op::Step || action.op == Op::FreeWeights || action.op == Op::NormGradients)
        continue;
      if (action.op == Op::SyncGradients && !is_replicated(action.stage)) continue;
      written.before(action);
      append(worker, action);
      written.after(action);
      note_wait(action);
      // Inside of an OVERLAP_F_B there is no place for one.
      if (!action.with_next) write_waits(written);
    }
    for (const auto& [of, send] : sent_forward_) due_.push_back(send);
    due_.insert(due_.end(), sent_back_.begin(), sent_back_.end());
    write_waits(written);
    written.end();
    if (text_.size() == begin) {
      throw ConfigError(fmt::format(
          "worker {} has no action, so that PyTorch's CSV cannot say which stages it holds",
          worker));
    }
    text_ += '\n';
  }

 private:
  /// What is to be waited for behind `action`, or later.
  void note_wait(const Action& action) {
    if (!has_waits_) return;
    if (action.op == Op::SendForward) sent_forward_[{action.stage, action.micro_batch}] = action;
    if (action.op == Op::SendBackward) sent_back_.push_back(action);
    if (action.op == Op::SyncGradients) due_.push_back(action);
    if (!makes_input_gradients(action.op)) return;
    // The gradient came back, so the peer has received what it was made from.
    const auto sent = sent_forward_.find({action.stage, action.micro_batch});
    if (sent == sent_forward_.end()) return;
    due_.push_back(sent->second);
    sent_forward_.erase(sent);
  }

  void write_waits(ListText& written) {
    for (const Action& action : due_) {
      written.before(action);
      const std::string_view word =
          action.op == Op::SyncGradients ? "REDUCE_GRAD" : to_string(action.op);
      text_ += fmt::format("{}WAIT_{}", action.stage.value, word);
      if (is_send(action.op)) text_ += fmt::to_string(action.micro_batch.value);
      written.after(action);
    }
    due_.clear();
  }

  bool is_replicated(StageId stage) const {
    return stage.value >= 0 && stage.value < shape_.num_stages() &&
           shape_.replicas[stage.index()] > 1;
  }

  void append(size_t worker, Action action) {
    if (action.op == Op::SyncGradients) {
      text_ += fmt::format("{}REDUCE_GRAD", action.stage.value);
      return;
    }
    const bool is_distant = is_message(action.op) && action.peer.value != neighbour(action);
    if (action.op == Op::Recompute || is_distant) {
      throw ConfigError(fmt::format(
          "worker {}, {}: PyTorch's CSV has {}", worker, to_text(action),
          is_distant ? "messages between neighbouring stages only" : "no recomputation"));
    }
    action.version = WeightVersion{-1};
    append_text(text_, action);
  }

  const ScheduleShape& shape_;
  bool has_waits_;
  std::string& text_;
  // Sends that nothing has waited for.
  std::map<std::pair<StageId, MicroBatchId>, Action> sent_forward_;
  std::vector<Action> sent_back_;
  std::vector<Action> due_;  ///< what is to be waited for behind this action
};

}  // namespace

PyTorchForm pytorch_form(std::string_view version) {
  struct Known {
    std::string_view version;
    PyTorchForm form;
  };
  constexpr std::array<Known, 3> kKnown = {
      {{"2.13", PyTorchForm::To214}, {"2.14", PyTorchForm::To214}, {"2.15", PyTorchForm::From215}}};
  for (const Known& known : kKnown) {
    const bool is_of_it = version.starts_with(known.version) &&
                          (version.size() == known.version.size() || version[4] == '.');
    if (is_of_it) return known.form;
  }
  throw ConfigError(
      fmt::format("expected a version of PyTorch whose schedule files are known (2.13, 2.14 or "
                  "2.15), found {}",
                  in_quotes(version)));
}

std::string to_pytorch_csv(const Schedule& schedule, PyTorchForm form) {
  check_shape(schedule.shape);
  check_sums(schedule);
  std::string text;
  text.reserve(static_cast<size_t>(schedule.num_actions()) * 8);
  for (size_t w = 0; w < schedule.workers.size(); ++w)
    RowWriter(schedule.shape, form, text).write(w, schedule.workers[w]);
  return text;
}

std::optional<std::string> why_pytorch_refuses(const Schedule& schedule) {
  for (int s = 0; s < schedule.shape.num_stages(); ++s) {
    const int count = schedule.shape.replicas[static_cast<size_t>(s)];
    if (count > 1)
      return fmt::format("stage {} is on {} workers; there each stage is on one rank", s, count);
  }
  if (!has_any(schedule, makes_weight_gradients)) return "it has no backward pass";
  return std::nullopt;
}

}  // namespace penstock::schedule
