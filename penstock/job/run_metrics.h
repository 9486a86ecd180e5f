// The numbers of a running training, in Prometheus' text format 0.0.4: steps, samples, loss, what
// workers compute and wait, bytes between ranks, memory, checkpoints. docs/operating.md lists them.
//
//   RunMetrics metrics(rank);
//   metrics.begin(run);                       // the run's plan is known
//   train(run, {.observer = &metrics});
//   metrics.end();
//   metrics.text();                           // at any time, from any thread
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/job/prepare.h"
#include "penstock/train/train_observer.h"
#include "penstock/util/process/mutex.h"

namespace penstock::job {

/// Thread-safe. What a worker does costs it two additions for each action.
class RunMetrics : public train::TrainObserver {
 public:
  explicit RunMetrics(int rank);

  /// `run` must live until end().
  void begin(const PreparedRun& run);
  /// The training is over, whatever became of it; its numbers stay.
  void end();
  std::string text() const;

  void on_mini_batch(const train::Progress& progress) override;
  void on_epoch(const train::EpochSummary& summary) override;
  void on_evaluation(const train::Evaluation& evaluation) override;
  void on_action(WorkerId worker, const schedule::TimelineEvent& event) override;
  bool watches_actions() const override { return true; }

 private:
  using Clock = std::chrono::system_clock;

  /// Each on cache lines of its own: its worker alone writes it.
  struct alignas(128) Worker {
    std::atomic<int64_t> busy_ns{0};
    std::atomic<int64_t> waiting_ns{0};
    std::atomic<int64_t> actions{0};
  };
  /// What is set now and then.
  struct State {
    const PreparedRun* run = nullptr;  ///< while it trains
    std::string phase = "preparing";
    std::string model;
    std::string strategy;
    int64_t mini_batches = 0;  ///< of an epoch
    std::string checkpoint;
    std::vector<int> own_workers;
    std::optional<Clock::time_point> began;
    std::optional<Clock::time_point> ended;
    std::optional<runtime::WireStats> wire;  ///< of a rank of several
    std::optional<train::Progress> progress;
    int64_t steps = 0;
    int64_t samples = 0;
    int64_t evaluations = 0;
    std::optional<double> test_loss;
    std::optional<double> test_accuracy;
    int64_t segment_samples = 0;  ///< of Progress::samples, which count anew in each segment
  };

  class Exposition;
  static void add_training(const State& state, Exposition& all);
  void add_workers(const State& state, Exposition& all) const;
  static void add_checkpoints(const State& state, Exposition& all);

  const std::string rank_;
  const Clock::time_point start_ = Clock::now();
  std::unique_ptr<Worker[]> workers_;
  std::atomic<int> num_workers_{0};
  mutable Mutex mutex_;
  State state_ GUARDED_BY(mutex_);
};

}  // namespace penstock::job
