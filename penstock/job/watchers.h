// Several observers of one training.
//
//   Watchers all;
//   all.add(&bar);
//   train(run, {.observer = &all});
#pragma once

#include <vector>

#include "penstock/train/train_observer.h"

namespace penstock::job {

/// Thread-safe as far as its observers are. Owns none of them.
class Watchers : public train::TrainObserver {
 public:
  void add(train::TrainObserver* observer) { all_.push_back(observer); }

  void on_mini_batch(const train::Progress& progress) override {
    for (train::TrainObserver* one : all_) one->on_mini_batch(progress);
  }
  void on_epoch(const train::EpochSummary& summary) override {
    for (train::TrainObserver* one : all_) one->on_epoch(summary);
  }
  void on_evaluation(const train::Evaluation& evaluation) override {
    for (train::TrainObserver* one : all_) one->on_evaluation(evaluation);
  }
  void on_action(WorkerId worker, const schedule::TimelineEvent& event) override {
    for (train::TrainObserver* one : all_)
      if (one->watches_actions()) one->on_action(worker, event);
  }
  bool watches_actions() const override {
    for (const train::TrainObserver* one : all_)
      if (one->watches_actions()) return true;
    return false;
  }

 private:
  std::vector<train::TrainObserver*> all_;
};

}  // namespace penstock::job
