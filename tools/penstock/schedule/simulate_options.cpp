#include "tools/penstock/schedule/simulate_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "penstock/profile/profile.h"
#include "penstock/util/error.h"
#include "tools/penstock/command/output_files.h"
#include "tools/penstock/command/precision_option.h"

namespace penstock::tool {

namespace {

bool read_number(std::string_view text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

using StagePairs = std::set<std::pair<int32_t, int32_t>>;

void check_against_model(const plan::Plan& plan, const std::string& path) {
  const profile::Profile profile = profile::load_profile(path);
  StagePairs needed;
  for (const graph::CrossingValue& crossing :
       graph::crossing_values(profile.graph, plan::stage_of_layer(plan, profile.graph))) {
    needed.emplace(crossing.from.value, crossing.to.value);
  }
  StagePairs given;
  for (const plan::Link& link : plan.links) given.emplace(link.from.value, link.to.value);
  for (const auto& [from, to] : needed) {
    if (given.contains({from, to})) continue;
    throw ConfigError(
        fmt::format("the plan has no link from stage {} to stage {}, but in the model of {} "
                    "tensors go that way",
                    from, to, path));
  }
  for (const auto& [from, to] : given) {
    if (needed.contains({from, to})) continue;
    throw ConfigError(
        fmt::format("the plan has a link from stage {} to stage {}, but in the model of {} no "
                    "tensor goes that way",
                    from, to, path));
  }
}

// Without the model all that can be seen is that a stage is cut off.
void check_connected(const plan::Plan& plan) {
  std::vector<size_t> group(plan.stages.size());
  std::iota(group.begin(), group.end(), size_t{0});
  const auto root = [&](size_t stage) {
    while (group[stage] != stage) stage = group[stage] = group[group[stage]];
    return stage;
  };
  for (const plan::Link& link : plan.links) group[root(link.to.index())] = root(link.from.index());
  for (size_t s = 1; s < group.size(); ++s) {
    if (root(s) == root(0)) continue;
    throw ConfigError(
        fmt::format("no link joins stage {} of the plan with stage 0: a plan of several stages "
                    "must say which tensors go between them (\"links\"); give --profile if its "
                    "model really is disconnected there",
                    s));
  }
}

}  // namespace

void add_simulate_options(CLI::App& app, SimulateOptions& options) {
  app.add_option("--plan", options.plan, "Plan (penstock plan)");
  app.add_option("--profile", options.profile,
                 "Check the plan's stages and links against the model of this profile first");
  add_precision(app, options.precision,
                "The precision that the plan must have been made for (default: any)");
  app.add_option("--boundary", options.boundary,
                 "How values and gradients travel between the plan's stages: float32, bfloat16, "
                 "float16, int8, subspace:K (default: as the plan says)");
  app.add_option("--schedule", options.schedule,
                 "Run this schedule (text form, or PyTorch's CSV) instead of the plan's own, with "
                 "the plan's costs or those below");
  options.mini_batches_option =
      app.add_option("--mini-batches", options.mini_batches, "Optimiser steps to simulate")
          ->capture_default_str()
          ->check(whole_number(1));
  app.add_option("--credits", options.credits,
                 "Messages that fit into a channel before a send waits; 0: rendezvous (default: no "
                 "send waits)")
      ->check(whole_number(0));
  app.add_option("--overlap", options.overlap,
                 "Where F and B run together (dualpipe): the share of the shorter one's time that "
                 "passes beside the longer one, 0 (the sum of both) to 1 (the longer one)")
      ->capture_default_str();
  app.add_option("--stragglers", options.stragglers,
                 "Share of the workers that are slower, and by which factor: 5%x2");
  app.add_option("--compute-spread", options.compute_spread,
                 "Log-normal spread of each computation's time: sigma of the logarithm");
  app.add_option("--trace", options.trace,
                 "Write a Chrome/Perfetto trace to this file (up to a million actions)");
  app.add_option("--html", options.html,
                 "Write the timeline as an HTML page to this file (up to a million actions)");
  app.add_flag("--grid", options.grid, "Draw the timeline as text (up to a million actions)");
  add_schedule_cost_options(app, options.costs);
}

void check_options(const SimulateOptions& options) {
  check_outputs(
      {{"--trace", options.trace}, {"--html", options.html}},
      {{"--plan", options.plan}, {"--schedule", options.schedule}, {"--profile", options.profile}});
  if (options.plan.empty() && options.schedule.empty())
    throw ConfigError("expected --plan or --schedule: nothing to simulate");
  if (!options.schedule.empty() && !options.mini_batches_option->empty())
    throw ConfigError("--schedule has its own length: leave out --mini-batches");
  if (options.plan.empty() && !options.profile.empty())
    throw ConfigError("--profile checks a plan: it needs --plan");
  if (options.plan.empty() && !options.boundary.empty())
    throw ConfigError("--boundary is for the messages of a plan: it needs --plan");
  if (options.plan.empty() && !options.html.empty())
    throw ConfigError("--html shows the plan, too: it needs --plan");
  if (!(options.overlap >= 0 && options.overlap <= 1))
    throw ConfigError(fmt::format("--overlap must lie between 0 and 1, found {}", options.overlap));
  const std::string cost = options.costs.given();
  if (!options.plan.empty() && !cost.empty())
    throw ConfigError(cost + " is for a --schedule without --plan: the plan has its own costs");
}

simulate::Stragglers parse_stragglers(std::string_view text) {
  const size_t cross = text.find('x');
  simulate::Stragglers stragglers;
  bool good =
      cross != std::string_view::npos && read_number(text.substr(cross + 1), stragglers.factor);
  if (good) {
    std::string_view share = text.substr(0, cross);
    const bool percent = share.ends_with('%');
    if (percent) share.remove_suffix(1);
    good = read_number(share, stragglers.share);
    if (percent) stragglers.share /= 100;
  }
  if (!good)
    throw ConfigError(
        fmt::format("'{}': expected a share and a factor such as 5%x2", text.substr(0, 40)));
  return stragglers;
}

simulate::Options run_options(const SimulateOptions& options) {
  simulate::Options run;
  run.keep_timeline = options.grid || !options.trace.empty() || !options.html.empty();
  run.seed = options.seed;
  if (!options.stragglers.empty())
    run.stragglers = parse_option("--stragglers", options.stragglers, parse_stragglers);
  run.compute_spread = options.compute_spread;
  return run;
}

void check_links(const plan::Plan& plan, const std::string& profile) {
  if (profile.empty()) {
    check_connected(plan);
  } else {
    check_against_model(plan, profile);
  }
}

}  // namespace penstock::tool
