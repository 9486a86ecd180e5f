// A file that says how far a run is, for those who must know whether it lives: its time is that of
// the last progress. docs/operating.md has its keys.
//
//   HealthFile health("health.json", rank);     // "preparing"
//   health.begin();                             // "training"
//   train(run, {.observer = &health});
//   health.end("done");
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

#include "penstock/train/train_observer.h"
#include "penstock/util/process/mutex.h"

namespace penstock::job {

/// Thread-safe. One thread of its own writes the file, at most every two seconds, and only when
/// there was progress: a training that hangs leaves the file old.
class HealthFile : public train::TrainObserver {
 public:
  /// Writes the file. Throws ConfigError or RuntimeError where it cannot be written.
  HealthFile(std::string path, int rank);
  /// "failed", if end() was not called.
  ~HealthFile() override;
  HealthFile(const HealthFile&) = delete;
  HealthFile& operator=(const HealthFile&) = delete;

  /// Once. Nothing after end(). Never throws: what cannot be written from here on is logged once.
  void begin();
  /// The last state: "done" or "interrupted". Never throws, as begin().
  /// The first call counts.
  void end(std::string_view state);

  void on_mini_batch(const train::Progress& progress) override;
  void on_epoch(const train::EpochSummary& summary) override;
  void on_evaluation(const train::Evaluation& evaluation) override;
  void on_action(WorkerId worker, const schedule::TimelineEvent& event) override;
  bool watches_actions() const override { return true; }

 private:
  void watch();
  void write(std::string_view state);
  void try_write(std::string_view state);

  const std::string path_;
  const int rank_;
  std::atomic<int64_t> step_{-1};          ///< -1: not known
  std::atomic<bool> has_progress_{false};  ///< since the file was written
  Mutex mutex_;
  CondVar ended_;
  bool is_over_ GUARDED_BY(mutex_) = false;
  bool has_warned_ = false;  ///< of one thread at a time: that of begin() and end(), or writer_
  std::thread writer_;
};

}  // namespace penstock::job
