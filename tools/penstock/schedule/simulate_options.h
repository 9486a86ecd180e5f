// Options of `penstock simulate`, and the checks of its input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "penstock/plan/plan.h"
#include "penstock/simulate/simulator.h"
#include "tools/penstock/command/command.h"
#include "tools/penstock/schedule/schedule_costs.h"

namespace penstock::tool {

struct SimulateOptions : CommonOptions {
  std::string plan;
  std::string profile;
  std::string schedule;
  std::string precision;  ///< empty: the plan's
  std::string boundary;   ///< empty: the plan's own codings
  int64_t mini_batches = 64;
  std::string stragglers;
  double compute_spread = 0;
  int64_t credits = -1;  ///< -1: as many as are needed
  double overlap = 0;
  std::string trace;
  std::string html;
  bool grid = false;
  ScheduleCostOptions costs;
  CLI::Option* mini_batches_option = nullptr;
};

void add_simulate_options(CLI::App& app, SimulateOptions& options);

/// Throws ConfigError for options that make no sense together.
void check_options(const SimulateOptions& options);

/// Throws ConfigError naming the option.
simulate::Options run_options(const SimulateOptions& options);

/// "5%x2": 5 % of the workers are slower by a factor of 2. "0.05x2" means the same. Throws
/// ConfigError otherwise.
simulate::Stragglers parse_stragglers(std::string_view text);

/// Throws ConfigError when the plan cannot be run as it stands: with the profile at `profile` (if
/// any), when stages, their order or the links are not those of its model; without, when some
/// stages exchange nothing with the others.
void check_links(const plan::Plan& plan, const std::string& profile);

}  // namespace penstock::tool
