// What a schedule's actions cost when no plan says so: `penstock simulate --schedule s.txt
// --forward 2ms --latency 10us`.
#pragma once

#include <string>
#include <vector>

#include "penstock/schedule/schedule.h"
#include "penstock/simulate/simulator.h"
#include "tools/penstock/command/command.h"

namespace penstock::tool {

/// Each is one value for all stages or, where stages have their own, one per stage: "1ms,2ms,2ms".
/// Empty: not given.
struct ScheduleCostOptions {
  std::string forward;
  std::string backward;
  std::string backward_input;
  std::string backward_weight;
  std::string step;
  std::string sync;
  std::string move;
  std::string stash_bytes;
  std::string weight_bytes;
  std::string message_bytes;  ///< one value
  std::string bandwidth;      ///< one value
  std::string latency;        ///< one value

  /// The name of one that is given, empty when none is.
  std::string given() const;
};

void add_schedule_cost_options(CLI::App& app, ScheduleCostOptions& options);
/// Only those that an order can be made from: times of F, B, I, W and of messages.
void add_order_cost_options(CLI::App& app, ScheduleCostOptions& options);

/// What is not given: F takes 1 ms, I and W as long as F, B as long as both; the rest is 0. W is
/// half of B when only B is given, and the rest of B when I is. Every link of the lowered schedule
/// carries `message_bytes`; a stage that recomputes keeps those of its incoming links. Throws
/// ConfigError naming the option.
simulate::Costs costs_of(const ScheduleCostOptions& options, const schedule::Schedule& schedule);

/// The same for ScheduleShape::costs.
std::vector<schedule::StepCosts> step_costs_of(const ScheduleCostOptions& options,
                                               const schedule::ScheduleShape& shape);

}  // namespace penstock::tool
