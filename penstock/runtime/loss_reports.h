// The losses of one replica's micro-batches, on their way to the fabric. Internal to runtime.
#pragma once

#include <cstdint>
#include <deque>

#include "penstock/model/loss.h"
#include "penstock/runtime/stage_context.h"
#include "penstock/schedule/action.h"

namespace penstock::runtime {

/// Not thread-safe: its worker owns it.
class LossReports {
 public:
  explicit LossReports(const StageContext& context) : context_(context) {}

  /// Of the forward pass `action`. One that a GPU has still to compute is reported later.
  void add(const schedule::Action& action, model::LossResult loss);
  /// Reports the losses that a GPU has computed by now; with `all`, waits for the others.
  void report(bool all);

 private:
  /// A loss that is still on the GPU, or on its way from there.
  struct Unread {
    schedule::Action action;
    Parcel numbers;
  };
  void report(const schedule::Action& action, double loss_sum, int64_t correct);

  const StageContext& context_;
  std::deque<Unread> unread_;
};

}  // namespace penstock::runtime
