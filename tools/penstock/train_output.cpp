#include "tools/penstock/train_output.h"

#include <fmt/format.h>

#include <iostream>
#include <vector>

#include "penstock/util/json.h"
#include "penstock/util/units.h"

namespace penstock::tool {

using schedule::Op;
using schedule::Timeline;

namespace {

/// Mean times of one worker's actions.
struct WorkerTimes {
  double forward_ns = 0;  ///< per micro-batch
  double backward_ns = 0;
  double step_ns = 0;  ///< per step
  double sync_ns = 0;
  double idle_share = 0;
};

WorkerTimes times_of(const Timeline& timeline, size_t worker) {
  double sums[4] = {};
  int64_t counts[4] = {};
  for (const auto& event : timeline.workers[worker]) {
    int slot = -1;
    switch (event.action.op) {
      case Op::Forward:
        slot = 0;
        break;
      case Op::Backward:
        slot = 1;
        break;
      case Op::Step:
        slot = 2;
        break;
      case Op::SyncGradients:
        slot = 3;
        break;
      default:
        break;
    }
    if (slot < 0) continue;
    sums[slot] += static_cast<double>(event.end_ns - event.start_ns - event.waiting_ns);
    ++counts[slot];
  }
  const auto mean = [&](int slot) { return counts[slot] > 0 ? sums[slot] / static_cast<double>(counts[slot]) : 0.0; };
  const auto makespan = static_cast<double>(timeline.makespan_ns());
  const double idle = makespan > 0 ? 1.0 - static_cast<double>(timeline.busy_ns(WorkerId{static_cast<int32_t>(worker)})) / makespan : 0.0;
  return {mean(0), mean(1), mean(2), mean(3), idle};
}

Json to_json(const WorkerTimes& times) {
  return {{"forward_ns", times.forward_ns},
          {"backward_ns", times.backward_ns},
          {"step_ns", times.step_ns},
          {"sync_ns", times.sync_ns},
          {"idle_share", times.idle_share}};
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::string row(const std::string& name, const WorkerTimes& t) {
  const auto time = [](double ns) { return format_duration(static_cast<int64_t>(ns)); };
  return fmt::format("  {:<26} {:>12} {:>12} {:>12} {:>12} {:>7.1f} %\n", name, time(t.forward_ns), time(t.backward_ns), time(t.step_ns),
                     time(t.sync_ns), 100 * t.idle_share);
}

}  // namespace

void ConsoleObserver::on_mini_batch(const train::Progress& p) {
  if (!bar_) bar_.emplace(fmt::format("epoch {}/{}", p.epoch + 1, p.epochs));
  bar_->update(p.mini_batch, p.mini_batches,
               fmt::format("loss {:.4f}  accuracy {:.1f} %  {:.0f} samples/s", p.loss, 100 * p.accuracy, p.samples_per_s));
}

void ConsoleObserver::on_epoch(const train::EpochSummary& s) {
  bar_.reset();
  std::cerr << fmt::format("epoch {}: loss {:.4f}, accuracy {:.2f} %", s.epoch + 1, s.loss, 100 * s.train_accuracy);
  if (s.test_accuracy) std::cerr << fmt::format("; test loss {:.4f}, test accuracy {:.2f} %", *s.test_loss, 100 * *s.test_accuracy);
  std::cerr << fmt::format("; {:.0f} samples/s, {}", s.samples_per_s, format_duration(s.train_ns)) << std::endl;
}

std::string to_json(const Outcome& outcome) {
  const train::TrainResult& r = outcome.result;
  Json workers = Json::array();
  for (size_t w = 0; w < r.timeline.workers.size(); ++w) {
    Json entry{{"stage", r.schedule.shape.stage_of(WorkerId{static_cast<int32_t>(w)}).value},
               {"measured", to_json(times_of(r.timeline, w))}};
    if (outcome.predicted != nullptr) entry["predicted"] = to_json(times_of(outcome.predicted->timeline, w));
    if (w < r.peak_versions.size()) entry["peak_weight_versions"] = r.peak_versions[w];
    workers.push_back(std::move(entry));
  }
  Json epochs = Json::array();
  for (const auto& e : r.epochs) {
    epochs.push_back({{"epoch", e.epoch + 1},
                      {"loss", e.loss},
                      {"train_accuracy", e.train_accuracy},
                      {"test_loss", or_null(e.test_loss)},
                      {"test_accuracy", or_null(e.test_accuracy)},
                      {"samples_per_s", e.samples_per_s},
                      {"train_ns", e.train_ns}});
  }
  const Json document{{"strategy", outcome.plan.strategy},
                      {"weights", outcome.plan.weights},
                      {"config", outcome.plan.config()},
                      {"losses", r.losses},
                      {"final_loss", r.losses.empty() ? Json(nullptr) : Json(r.final_loss)},
                      {"test_accuracy", or_null(r.test_accuracy)},
                      {"throughput_samples_per_s", r.throughput_samples_per_s},
                      {"predicted_throughput_samples_per_s",
                       outcome.predicted != nullptr ? Json(outcome.predicted->throughput_samples_per_s) : Json(nullptr)},
                      {"idle_share", r.idle_share},
                      {"predicted_idle_share", outcome.predicted != nullptr ? Json(outcome.predicted->idle_share) : Json(nullptr)},
                      {"peak_memory_bytes", r.peak_memory_bytes},
                      {"steps", r.steps},
                      {"interrupted", r.interrupted},
                      {"epochs", epochs},
                      {"workers", workers}};
  return document.dump() + "\n";
}

std::string to_text(const Outcome& outcome) {
  const train::TrainResult& r = outcome.result;
  std::string text;
  if (r.interrupted) text += "interrupted; ";
  text += fmt::format("{} steps with {} {} ({} weights)\n", r.steps, outcome.plan.strategy, outcome.plan.config(), outcome.plan.weights);
  if (!r.losses.empty()) text += fmt::format("  final loss     {:.4f}\n", r.final_loss);
  if (r.test_accuracy) text += fmt::format("  test accuracy  {:.2f} %\n", 100 * *r.test_accuracy);
  text += fmt::format("  peak memory    {}\n", format_bytes(r.peak_memory_bytes));
  if (outcome.predicted == nullptr || r.throughput_samples_per_s <= 0) return text;
  const double predicted = outcome.predicted->throughput_samples_per_s;
  text += fmt::format("\n  {:<26} {:>12} {:>12}\n", "", "measured", "predicted");
  text += fmt::format("  {:<26} {:>12.1f} {:>12.1f}   measured / predicted = {:.3f}\n", "throughput, samples/s", r.throughput_samples_per_s,
                      predicted, predicted > 0 ? r.throughput_samples_per_s / predicted : 0);
  text += fmt::format("  {:<26} {:>11.1f}% {:>11.1f}%\n", "idle share", 100 * r.idle_share, 100 * outcome.predicted->idle_share);
  text += fmt::format("\n  {:<26} {:>12} {:>12} {:>12} {:>12} {:>9}\n", "per action", "forward", "backward", "step", "sync", "idle");
  for (size_t w = 0; w < r.timeline.workers.size(); ++w) {
    const int stage = r.schedule.shape.stage_of(WorkerId{static_cast<int32_t>(w)}).value;
    text += row(fmt::format("worker {} (stage {}) measured", w, stage), times_of(r.timeline, w));
    text += row("                    predicted", times_of(outcome.predicted->timeline, w));
  }
  return text;
}

}  // namespace penstock::tool
