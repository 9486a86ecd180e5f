#include "penstock/job/run_metrics.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "penstock/schedule/action.h"
#include "penstock/train/checkpoint/checkpoint_folders.h"
#include "penstock/util/process/memory_kinds.h"

namespace penstock::job {

namespace {

/// Of a label: a backslash, a quote and a newline are escaped.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

double seconds_since_1970(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double seconds(int64_t ns) { return 1e-9 * static_cast<double>(ns); }

bool is_work(schedule::Op op) {
  using schedule::Op;
  return is_compute(op) || op == Op::SyncGradients || op == Op::NormGradients || op == Op::Step;
}

}  // namespace

/// The text, line by line.
class RunMetrics::Exposition {
 public:
  explicit Exposition(std::string rank) : rank_(std::move(rank)) {}

  /// The lines of a name stand together, behind one head.
  void add(std::string_view name, std::string_view type, std::string_view help, double value,
           const std::string& labels = {}) {
    if (name != last_) text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
    last_ = name;
    text_ += fmt::format("{}{{{}{}{}}} {}\n", name, rank_, labels.empty() ? "" : ",", labels,
                         number(value));
  }
  void gauge(std::string_view name, std::string_view help, double value,
             const std::string& labels = {}) {
    add(name, "gauge", help, value, labels);
  }
  void counter(std::string_view name, std::string_view help, double value,
               const std::string& labels = {}) {
    add(name, "counter", help, value, labels);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string rank_;
  std::string text_;
  std::string_view last_;  ///< of a literal
};

RunMetrics::RunMetrics(int rank) : rank_(fmt::format("rank=\"{}\"", rank)) {}

void RunMetrics::begin(const PreparedRun& run) {
  const plan::Plan& plan = run.train.plan;
  const MutexLock lock(mutex_);
  state_.run = &run;
  state_.phase = "training";
  state_.model = run.model.name();
  state_.strategy = plan::to_string(plan.strategy);
  state_.mini_batches = train::mini_batches_per_epoch(run.data.train->size(), run.train);
  state_.checkpoint = run.is_first() ? run.request.run.checkpoint : "";
  if (run.train.resume)
    state_.checkpoint = train::folder_of_checkpoints(state_.checkpoint).string();
  state_.began = Clock::now();
  state_.own_workers.clear();
  if (run.world != nullptr) {
    for (const WorkerId worker : run.world->site().own_workers())
      state_.own_workers.push_back(worker.value);
  } else {
    for (int w = 0; w < plan.num_workers(); ++w) state_.own_workers.push_back(w);
  }
  workers_ = std::make_unique<Worker[]>(static_cast<size_t>(plan.num_workers()));
  num_workers_.store(plan.num_workers(), std::memory_order_release);
}

void RunMetrics::end() {
  const MutexLock lock(mutex_);
  if (state_.run != nullptr && state_.run->world != nullptr)
    state_.wire = state_.run->world->wire();
  state_.run = nullptr;
  state_.phase = "ended";
  state_.ended = Clock::now();
}

void RunMetrics::on_mini_batch(const train::Progress& progress) {
  const MutexLock lock(mutex_);
  // A new segment counts from 0.
  if (progress.samples <= state_.segment_samples) state_.segment_samples = 0;
  state_.samples += progress.samples - state_.segment_samples;
  state_.segment_samples = progress.samples;
  ++state_.steps;
  state_.progress = progress;
}

void RunMetrics::on_epoch(const train::EpochSummary& summary) {
  const MutexLock lock(mutex_);
  state_.segment_samples = 0;
  if (!summary.test_loss) return;
  ++state_.evaluations;
  state_.test_loss = summary.test_loss;
  state_.test_accuracy = summary.test_accuracy;
}

void RunMetrics::on_evaluation(const train::Evaluation& evaluation) {
  const MutexLock lock(mutex_);
  state_.segment_samples = 0;
  ++state_.evaluations;
  state_.test_loss = evaluation.loss;
  state_.test_accuracy = evaluation.accuracy;
}

void RunMetrics::on_action(WorkerId worker, const schedule::TimelineEvent& event) {
  if (worker.value >= num_workers_.load(std::memory_order_acquire)) return;
  Worker& own = workers_[worker.index()];
  // Its worker alone writes: no exchange is needed.
  const auto add = [](std::atomic<int64_t>& sum, int64_t ns) {
    sum.store(sum.load(std::memory_order_relaxed) + ns, std::memory_order_relaxed);
  };
  if (is_work(event.action.op)) add(own.busy_ns, event.end_ns - event.start_ns - event.waiting_ns);
  if (event.waiting_ns > 0) add(own.waiting_ns, event.waiting_ns);
  add(own.actions, 1);
}

void RunMetrics::add_training(const State& state, Exposition& all) {
  if (!state.progress) return;
  const train::Progress& p = *state.progress;
  const auto count = [](int64_t value) { return static_cast<double>(value); };
  all.counter("penstock_steps_total", "Optimiser steps of this process.", count(state.steps));
  all.counter("penstock_samples_total", "Samples that this process has trained with.",
              count(state.samples));
  all.gauge("penstock_step", "Optimiser steps over all runs of the training.", count(p.step));
  all.gauge("penstock_epoch", "Epochs that are complete, and the part of this one.",
            count(p.epoch) + count(p.mini_batch) / std::max(1.0, count(state.mini_batches)));
  all.gauge("penstock_epochs", "Epochs of the whole training.", count(p.epochs));
  all.gauge("penstock_loss", "Mean loss of the last step.", p.loss);
  if (!std::isnan(p.accuracy))
    all.gauge("penstock_accuracy", "Share of the epoch's targets that were right.", p.accuracy);
  all.gauge("penstock_samples_per_second", "Since the last evaluation or checkpoint.",
            p.samples_per_s);
  all.counter("penstock_evaluations_total", "Evaluations of this process.",
              count(state.evaluations));
  if (state.test_loss) all.gauge("penstock_test_loss", "Of the last evaluation.", *state.test_loss);
  if (state.test_accuracy)
    all.gauge("penstock_test_accuracy", "Of the last evaluation.", *state.test_accuracy);
}

void RunMetrics::add_workers(const State& state, Exposition& all) const {
  if (!state.began) return;
  double all_busy = 0;
  const auto each = [&](const char* name, const char* help, double (*value)(const Worker&)) {
    for (const int w : state.own_workers)
      all.counter(name, help, value(workers_[static_cast<size_t>(w)]),
                  fmt::format("worker=\"{}\"", w));
  };
  for (const int w : state.own_workers)
    all_busy += seconds(workers_[static_cast<size_t>(w)].busy_ns.load(std::memory_order_relaxed));
  each("penstock_worker_busy_seconds_total", "Computing, summing and stepping, without waits.",
       [](const Worker& w) { return seconds(w.busy_ns.load(std::memory_order_relaxed)); });
  each("penstock_worker_waiting_seconds_total", "Waiting for other workers.",
       [](const Worker& w) { return seconds(w.waiting_ns.load(std::memory_order_relaxed)); });
  each("penstock_worker_actions_total", "Actions of the schedule that were done.",
       [](const Worker& w) {
         return static_cast<double>(w.actions.load(std::memory_order_relaxed));
       });
  const double elapsed =
      std::chrono::duration<double>(state.ended.value_or(Clock::now()) - *state.began).count();
  const double possible = elapsed * static_cast<double>(state.own_workers.size());
  if (possible > 0)
    all.gauge(
        "penstock_idle_share",
        "Share of its workers' time since training began that was not busy, evaluations included.",
        std::clamp(1 - all_busy / possible, 0.0, 1.0));
}

void RunMetrics::add_checkpoints(const State& state, Exposition& all) {
  namespace fs = std::filesystem;
  if (state.checkpoint.empty()) return;
  int64_t kept = 0;
  int64_t bytes = 0;
  int64_t newest = 0;
  try {
    for (const fs::path& folder : train::list_checkpoints(state.checkpoint)) {
      int64_t own = 0;
      std::error_code error;
      for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const uintmax_t size = entry.is_regular_file(error) ? entry.file_size(error) : 0;
        if (!error) own += static_cast<int64_t>(size);
      }
      if (kept++ == 0) newest = own;
      bytes += own;
    }
  } catch (const std::exception&) {
    return;  // written or removed at this moment
  }
  all.gauge("penstock_checkpoints", "Checkpoints that the folder keeps.",
            static_cast<double>(kept));
  all.gauge("penstock_checkpoints_bytes", "Their size.", static_cast<double>(bytes));
  all.gauge("penstock_checkpoint_bytes", "Size of the newest.", static_cast<double>(newest));
}

std::string RunMetrics::text() const {
  State state;
  {
    const MutexLock lock(mutex_);
    state = state_;
    // Under the lock, as end() takes the world away.
    if (state.run != nullptr && state.run->world != nullptr) state.wire = state.run->world->wire();
  }
  Exposition all(rank_);
  all.gauge("penstock_build_info", "Versions.", 1,
            fmt::format("version=\"{}\",libtorch=\"{}\"", PENSTOCK_VERSION, TORCH_VERSION));
  if (state.began) {
    all.gauge("penstock_run_info", "What is trained.", 1,
              fmt::format("model=\"{}\",strategy=\"{}\"", escaped(state.model), state.strategy));
  }
  for (const char* phase : {"preparing", "training", "ended"}) {
    all.gauge("penstock_phase", "1: the phase that the run is in.", state.phase == phase ? 1 : 0,
              fmt::format("phase=\"{}\"", phase));
  }
  all.gauge("penstock_start_time_seconds", "When the process began, since 1970.",
            seconds_since_1970(start_));
  add_training(state, all);
  add_workers(state, all);
  if (state.wire) {
    all.counter("penstock_sent_bytes_total", "Of tensors, to other ranks.",
                static_cast<double>(state.wire->sent_bytes));
    all.counter("penstock_received_bytes_total", "Of tensors, from other ranks.",
                static_cast<double>(state.wire->received_bytes));
  }
  all.gauge("penstock_resident_memory_bytes", "Pages of the process.",
            static_cast<double>(heap_state().resident));
  add_checkpoints(state, all);
  return all.take();
}

}  // namespace penstock::job
