#include "penstock/job/run_summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "penstock/job/run_memory.h"
#include "penstock/plan/boundaries.h"
#include "penstock/report/text/text.h"
#include "penstock/schedule/teams.h"
#include "penstock/schedule/worker_table.h"
#include "penstock/util/files/json.h"
#include "penstock/util/numbers/arithmetic.h"
#include "penstock/util/text/format_rate.h"
#include "penstock/util/text/units.h"

namespace penstock::job {

using schedule::Op;
using schedule::Timeline;

namespace {

/// Mean times of one worker's actions, waiting left out.
struct WorkerTimes {
  std::map<Op, double> mean_ns;
  double idle_share = 0;

  double of(Op op) const {
    const auto found = mean_ns.find(op);
    return found == mean_ns.end() ? 0 : found->second;
  }
  /// In one action or in two.
  double backward_ns() const {
    return of(Op::Backward) > 0 ? of(Op::Backward) : of(Op::BackwardInput) + of(Op::BackwardWeight);
  }
};

WorkerTimes times_of(const Timeline& timeline, size_t worker) {
  std::map<Op, double> sums;
  std::map<Op, int64_t> counts;
  for (const auto& event : timeline.workers[worker]) {
    sums[event.action.op] += static_cast<double>(event.end_ns - event.start_ns - event.waiting_ns);
    ++counts[event.action.op];
  }
  WorkerTimes times;
  for (const auto& [op, sum] : sums) times.mean_ns[op] = sum / static_cast<double>(counts[op]);
  const auto makespan = static_cast<double>(timeline.makespan_ns());
  times.idle_share =
      makespan > 0
          ? 1.0 - static_cast<double>(timeline.busy_ns(WorkerId{static_cast<int32_t>(worker)})) /
                      makespan
          : 0.0;
  return times;
}

Json to_json(const WorkerTimes& times) {
  Json json{{"forward_ns", times.of(Op::Forward)},
            {"backward_ns", times.backward_ns()},
            {"step_ns", times.of(Op::Step)},
            {"sync_ns", times.of(Op::SyncGradients)},
            {"idle_share", times.idle_share}};
  const std::pair<Op, const char*> optional[] = {{Op::BackwardInput, "backward_input_ns"},
                                                 {Op::BackwardWeight, "backward_weight_ns"},
                                                 {Op::Recompute, "recompute_ns"},
                                                 {Op::NormGradients, "norm_ns"}};
  for (const auto& [op, key] : optional) {
    if (times.mean_ns.contains(op)) json[key] = times.of(op);
  }
  return json;
}

/// What a worker holds: the plan's stages and, where these have teams, which member it is.
struct Held {
  std::vector<int> stages;
  int member = 0;
  int team = 1;  ///< members

  /// "stage 0", "stages 0, 3", "stage 0, member 1"
  std::string text() const {
    return fmt::format("stage{} {}{}", stages.size() > 1 ? "s" : "", fmt::join(stages, ", "),
                       team > 1 ? fmt::format(", member {}", member) : "");
  }
};

/// By worker; none where nothing was measured.
std::vector<Held> held_by_workers(const train::TrainResult& result) {
  std::vector<Held> workers(result.timeline.workers.size());
  if (workers.empty()) return workers;
  const schedule::ScheduleShape& shape = result.schedule.shape;
  const schedule::WorkerTable table(shape);
  for (size_t w = 0; w < workers.size(); ++w) {
    for (const auto& held : table.held_by(WorkerId{static_cast<int32_t>(w)})) {
      const schedule::TeamPlace place = schedule::place_in_team(shape, held.stage);
      workers[w].stages.push_back(place.whole.value);
      workers[w].member = place.member;
      workers[w].team = place.size;
    }
  }
  return workers;
}

/// Steps count from 1 over all runs; a resumed run takes its final loss over its own.
int64_t final_loss_first_step(const train::TrainResult& result) {
  return result.steps - result.final_loss_steps + 1;
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

/// After which epoch, from 1, the test results were made; 0: in no epoch of this run.
int64_t tested_epoch(const train::TrainResult& result) {
  for (size_t e = result.epochs.size(); e-- > 0;) {
    if (result.epochs[e].test_loss) return result.epochs[e].epoch + 1;
  }
  return 0;
}

/// Where the weights have changed since.
std::string tested_when(const train::TrainResult& result) {
  if (result.epochs.empty() || result.epochs.back().test_loss || tested_epoch(result) == 0)
    return {};
  return fmt::format(" (after epoch {})", tested_epoch(result));
}

/// What crossed the network, where there are several processes.
/// `training`: how many of the ranks have workers; the first ones.
std::string ranks_text(const std::vector<train::RankSummary>& ranks, int servers, int training) {
  std::string text;
  int64_t clock_error_ns = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const bool is_server = std::ssize(ranks) - static_cast<int64_t>(r) <= servers;
    const int64_t peak = ranks[r].peak_memory_bytes;  // 0: nothing was trained
    text += fmt::format("  rank {:<9} sent {}, received {}{}{}\n", r,
                        format_bytes(ranks[r].sent_bytes), format_bytes(ranks[r].received_bytes),
                        peak > 0 ? ", peak memory " + format_bytes(peak) : "",
                        is_server                         ? "; a server: it only adds gradients"
                        : static_cast<int>(r) >= training ? "; it does not train"
                                                          : "");
    clock_error_ns = std::max(clock_error_ns, ranks[r].clock_error_ns);
  }
  if (!ranks.empty()) {
    text += fmt::format("  clocks         equal within {}\n", format_duration(clock_error_ns));
  }
  return text;
}

/// Empty where nothing was counted or predicted.
std::string memory_row(const std::string& name, int64_t measured, int64_t predicted) {
  if (measured <= 0 || predicted <= 0) return {};
  return fmt::format("  {:<26} {:>12} {:>12}\n", name, format_bytes(measured),
                     format_bytes(predicted));
}

/// The memory of worker `w`, as the plan predicts it: that of the first replica of a stage. Of
/// replicas that share weights, the others have less.
int64_t predicted_bytes(const Outcome& outcome, const Held& held, size_t w) {
  int64_t bytes = 0;
  for (const int number : held.stages) {
    const plan::Stage& stage = outcome.plan.stages[static_cast<size_t>(number)];
    if (stage.shares_weights && outcome.predicted != nullptr &&
        w < outcome.predicted->memory.size())
      return outcome.predicted->memory[w].sum();
    bytes = std::max(bytes, stage.memory_bytes);
  }
  return bytes;
}

/// Rows of measured and predicted memory: of each rank where each has one worker, of this process
/// where there are no ranks; otherwise none, since processes are measured, not workers.
std::string tensors_text(const Outcome& outcome, const std::vector<Held>& workers) {
  const train::TrainResult& r = outcome.result;
  const bool one_each = r.ranks.size() == r.timeline.workers.size();
  std::string text;
  int64_t all = 0;
  for (size_t w = 0; w < workers.size(); ++w) {
    const int64_t predicted = predicted_bytes(outcome, workers[w], w);
    all = saturating_add(all, predicted);
    if (one_each)
      text +=
          memory_row(fmt::format("tensors of rank {}", w), r.ranks[w].peak_tensor_bytes, predicted);
  }
  return r.ranks.empty() ? memory_row("tensors, at most", r.peak_tensor_bytes, all) : text;
}

/// Under float16 a step that is left out has an infinite norm.
double greatest_finite(const std::vector<double>& norms) {
  double greatest = 0;
  for (const double norm : norms) {
    if (std::isfinite(norm)) greatest = std::max(greatest, norm);
  }
  return greatest;
}

/// An end of the prediction's interval; null where it is not known.
Json interval_end(const Outcome& outcome, double plan::Interval::*end) {
  const bool is_known = outcome.predicted != nullptr && outcome.predicted->interval.has_value();
  return is_known ? Json(*outcome.predicted->interval.*end) : Json(nullptr);
}

/// "predicted 1,050 samples/s, 980 to 1,100: the run lay below; other programs used 0.8 cores
/// meanwhile"
std::string interval_text(const Prediction& predicted, const train::TrainResult& result) {
  if (!predicted.interval) return {};
  constexpr double kWorthSaying = 0.1;
  const plan::Interval& interval = *predicted.interval;
  const double measured = result.throughput_samples_per_s;
  const bool below = measured < interval.low;
  std::string why;
  if (below && result.busy_others.value_or(0) >= kWorthSaying)
    why = fmt::format("; other programs used {:.1f} cores meanwhile", *result.busy_others);
  return fmt::format("  predicted {} samples/s, {}: the run lay {}{}\n",
                     format_rate(predicted.throughput_samples_per_s), interval.text(),
                     interval.holds(measured) ? "within"
                     : below                  ? "below"
                                              : "above",
                     why);
}

std::string row(const std::string& name, const WorkerTimes& t) {
  const auto time = [](double ns) { return format_duration(static_cast<int64_t>(ns)); };
  return fmt::format("  {:<26} {:>12} {:>12} {:>12} {:>12} {:>7.1f} %\n", name,
                     time(t.of(Op::Forward)), time(t.backward_ns()), time(t.of(Op::Step)),
                     time(t.of(Op::SyncGradients)), 100 * t.idle_share);
}

Json workers_json(const Outcome& outcome) {
  const train::TrainResult& r = outcome.result;
  Json workers = Json::array();
  const std::vector<Held> held = held_by_workers(r);
  for (size_t w = 0; w < held.size(); ++w) {
    Json entry{{"stage", held[w].stages.front()},
               {"stages", held[w].stages},
               {"measured", to_json(times_of(r.timeline, w))}};
    if (held[w].team > 1) entry["member"] = held[w].member;
    if (outcome.predicted != nullptr)
      entry["predicted"] = to_json(times_of(outcome.predicted->timeline, w));
    if (const int64_t bytes = predicted_bytes(outcome, held[w], w); bytes > 0)
      entry["predicted_memory_bytes"] = bytes;
    if (w < r.peak_versions.size()) entry["peak_weight_versions"] = r.peak_versions[w];
    workers.push_back(std::move(entry));
  }
  return workers;
}

Json epochs_json(const train::TrainResult& r) {
  Json epochs = Json::array();
  for (const auto& e : r.epochs) {
    epochs.push_back(
        {{"epoch", e.epoch + 1},
         {"loss", e.loss},
         {"train_accuracy", std::isnan(e.train_accuracy) ? Json(nullptr) : Json(e.train_accuracy)},
         {"test_loss", or_null(e.test_loss)},
         {"test_accuracy", or_null(e.test_accuracy)},
         {"grad_norm", or_null(e.grad_norm)},
         {"samples_per_s", e.samples_per_s},
         {"train_ns", e.train_ns}});
  }
  return epochs;
}

/// By rule; null without the option.
Json large_batch_json(std::span<const LargeBatchNote> notes) {
  if (notes.empty()) return nullptr;
  Json rules = Json::object();
  for (const LargeBatchNote& note : notes)
    rules[note.rule] = {{"set", note.is_set}, {"text", note.text}};
  return rules;
}

double seconds(const train::Evaluation& evaluation) {
  return static_cast<double>(evaluation.train_ns) / 1e9;
}

Json evaluations_json(const Outcome& outcome) {
  Json all = Json::array();
  for (const train::Evaluation& e : outcome.result.evaluations) {
    const double value = e.of(outcome.metric);
    all.push_back({{"step", e.step},
                   {"samples", e.samples},
                   {"train_s", seconds(e)},
                   {"loss", e.loss},
                   {"accuracy", or_null(e.accuracy)},
                   {"top5", or_null(e.top5)},
                   {"metric", std::isfinite(value) ? Json(value) : Json(nullptr)}});
  }
  return all;
}

/// "78.3", or "91.20 %".
std::string metric_value(train::Metric metric, double value) {
  return traits(metric).is_share ? fmt::format("{:.2f} %", 100 * value)
                                 : fmt::format("{:.4g}", value);
}

/// What is not said by the test's loss and accuracy: the metric, its best step, its target.
std::string metric_text(const Outcome& outcome) {
  const train::TrainResult& r = outcome.result;
  if (!r.best) return {};
  const train::Metric metric = outcome.metric;
  const train::Evaluation& last = r.evaluations.back();
  const train::Evaluation& best = r.evaluations[*r.best];
  std::string text;
  if (metric != train::Metric::Loss && metric != train::Metric::Accuracy)
    text += fmt::format("  {:<14} {}\n", to_string(metric), metric_value(metric, last.of(metric)));
  if (best.step != last.step)
    text += fmt::format("  best {:<9} {} after step {}\n", to_string(metric),
                        metric_value(metric, best.of(metric)), best.step);
  if (!outcome.target) return text;
  const std::string target = metric_value(metric, *outcome.target);
  return text + (r.reached_target
                     ? fmt::format("  target         {} of {} after {}, {} samples and {} of "
                                   "training\n",
                                   to_string(metric), target, report::plural(last.step, "step"),
                                   last.samples, format_duration(last.train_ns))
                     : fmt::format("  target         {} of {} was not reached\n", to_string(metric),
                                   target));
}

}  // namespace

std::string summary_json(const Outcome& outcome) {
  const train::TrainResult& r = outcome.result;
  Json devices = Json::array();
  for (const train::DevicePeak& device : r.devices)
    devices.push_back({{"device", device.device},
                       {"name", device.name},
                       {"peak_memory_bytes", device.peak_memory_bytes}});
  Json sent = Json::array();
  Json received = Json::array();
  Json peaks = Json::array();
  Json tensors = Json::array();
  int64_t clock_error_ns = 0;
  for (const train::RankSummary& rank : r.ranks) {
    sent.push_back(rank.sent_bytes);
    received.push_back(rank.received_bytes);
    peaks.push_back(rank.peak_memory_bytes);
    tensors.push_back(rank.peak_tensor_bytes);
    clock_error_ns = std::max(clock_error_ns, rank.clock_error_ns);
  }
  const Json document{
      {"strategy", to_string(outcome.plan.strategy)},
      {"weights", to_string(outcome.plan.weights)},
      {"compensate", to_string(outcome.plan.compensation)},
      {"boundary", plan::boundaries_text(outcome.plan)},
      {"config", outcome.plan.config()},
      {"ranks", std::max<size_t>(r.ranks.size(), 1)},
      {"servers", outcome.servers},
      {"bytes_sent", sent},
      {"bytes_received", received},
      {"rank_peak_memory_bytes", peaks},
      {"rank_peak_tensor_bytes", tensors},
      {"clock_error_ns", clock_error_ns},
      {"losses", r.losses},
      {"learning_rates", r.learning_rates},
      {"grad_norms", r.grad_norms},
      {"final_loss", r.losses.empty() ? Json(nullptr) : Json(r.final_loss)},
      {"final_loss_first_step", r.losses.empty() ? Json(nullptr) : Json(final_loss_first_step(r))},
      {"final_loss_last_step", r.losses.empty() ? Json(nullptr) : Json(r.steps)},
      {"test_loss", or_null(r.test_loss)},
      {"test_accuracy", or_null(r.test_accuracy)},
      {"eval", evaluations_json(outcome)},
      {"metric", to_string(outcome.metric)},
      {"best_step", r.best ? Json(r.evaluations[*r.best].step) : Json(nullptr)},
      {"target_step", r.reached_target ? Json(r.evaluations.back().step) : Json(nullptr)},
      {"time_to_target_s", r.reached_target ? Json(seconds(r.evaluations.back())) : Json(nullptr)},
      {"tested_after_epoch", tested_epoch(r) > 0 ? Json(tested_epoch(r)) : Json(nullptr)},
      {"throughput_samples_per_s", r.throughput_samples_per_s},
      {"predicted_throughput_samples_per_s", outcome.predicted != nullptr
                                                 ? Json(outcome.predicted->throughput_samples_per_s)
                                                 : Json(nullptr)},
      {"prediction_low_samples_per_s", interval_end(outcome, &plan::Interval::low)},
      {"prediction_high_samples_per_s", interval_end(outcome, &plan::Interval::high)},
      {"busy_others_cores", r.busy_others ? Json(*r.busy_others) : Json(nullptr)},
      {"idle_share", r.idle_share},
      {"predicted_idle_share",
       outcome.predicted != nullptr ? Json(outcome.predicted->idle_share) : Json(nullptr)},
      {"peak_memory_bytes", r.peak_memory_bytes},
      {"peak_tensor_bytes", r.peak_tensor_bytes},
      {"memory", report::memory_json(memory_account(r, outcome.predicted))},
      {"devices", devices},
      {"steps", r.steps},
      {"precision", to_string(outcome.plan.precision)},
      {"skipped_steps", r.skipped_steps},
      {"loss_scale", r.loss_scale},
      {"interrupted", r.interrupted},
      {"classes", outcome.classes},
      {"large_batch", large_batch_json(outcome.large_batch)},
      {"epochs", epochs_json(r)},
      {"workers", workers_json(outcome)}};
  return document.dump() + "\n";
}

std::string_view interruption_text(bool saves) {
  return saves ? "interrupted and saved: continue with --resume\n"
               : "interrupted: nothing saved (no --checkpoint)\n";
}

std::string summary_text(const Outcome& outcome) {
  const train::TrainResult& r = outcome.result;
  std::string text;
  if (r.interrupted) text += interruption_text(outcome.saves);
  text += r.losses.empty()
              ? fmt::format("nothing trained; {} so far\n", report::plural(r.steps, "step"))
              : fmt::format(
                    "{} with {} {} ({} weights{})\n", report::plural(r.steps, "step"),
                    to_string(outcome.plan.strategy), outcome.plan.config(),
                    to_string(outcome.plan.weights),
                    outcome.plan.compensation == plan::Compensation::None
                        ? ""
                        : fmt::format(", compensated by {}", to_string(outcome.plan.compensation)));
  if (!r.losses.empty())
    text += fmt::format("  final loss     {:.4f} (mean of steps {} to {})\n", r.final_loss,
                        final_loss_first_step(r), r.steps);
  if (!r.grad_norms.empty())
    text += fmt::format("  gradient norm  {:.4g} in the last step, {:.4g} at most\n",
                        r.grad_norms.back(), greatest_finite(r.grad_norms));
  if (scales_loss(outcome.plan.precision)) {
    text += fmt::format(
        "  loss scale     {:g} at the end; {} left out, because a gradient was infinite\n",
        r.loss_scale, report::plural(r.skipped_steps, "step"));
  }
  const std::string when = tested_when(r);
  if (r.test_loss) text += fmt::format("  test loss      {:.4f}{}\n", *r.test_loss, when);
  if (r.test_accuracy)
    text += fmt::format("  test accuracy  {:.2f} %{}\n", 100 * *r.test_accuracy, when);
  text += metric_text(outcome);
  if (r.peak_memory_bytes > 0) {
    text += fmt::format("  peak memory    {}, of the whole process\n",
                        format_bytes(r.peak_memory_bytes));
  }
  for (const train::DevicePeak& device : r.devices) {
    text += fmt::format("  on {:<11} {} of {}, at most\n", device.device,
                        format_bytes(device.peak_memory_bytes), device.name);
  }
  text += ranks_text(r.ranks, outcome.servers, outcome.plan.num_workers());
  if (outcome.predicted == nullptr || r.throughput_samples_per_s <= 0) return text;
  const double predicted = outcome.predicted->throughput_samples_per_s;
  text += fmt::format("\n  {:<26} {:>12} {:>12}\n", "", "measured", "predicted");
  text += fmt::format("  {:<26} {:>12} {:>12}   measured / predicted = {:.3f}\n",
                      "throughput, samples/s", format_rate(r.throughput_samples_per_s),
                      format_rate(predicted),
                      predicted > 0 ? r.throughput_samples_per_s / predicted : 0);
  text += interval_text(*outcome.predicted, r);
  text += fmt::format("  {:<26} {:>10.1f} % {:>10.1f} %\n", "idle share", 100 * r.idle_share,
                      100 * outcome.predicted->idle_share);
  const std::vector<Held> workers = held_by_workers(r);
  text += tensors_text(outcome, workers);
  text += fmt::format("\n  {:<26} {:>12} {:>12} {:>12} {:>12} {:>9}\n", "per action", "forward",
                      "backward", "step", "sync", "idle");
  for (size_t w = 0; w < workers.size(); ++w) {
    text +=
        row(fmt::format("worker {} ({}) measured", w, workers[w].text()), times_of(r.timeline, w));
    text += row("                    predicted", times_of(outcome.predicted->timeline, w));
  }
  text += report::memory_text(memory_account(r, outcome.predicted));
  return text;
}

}  // namespace penstock::job
