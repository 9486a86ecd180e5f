#include "penstock/planner/pytorch_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "penstock/planner/planner.h"
#include "penstock/util/error.h"

namespace penstock::planner {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw NotForPytorch("torch.distributed.pipelining " + why);
}

/// Position of the first layer of each stage but the first.
std::vector<int> cuts_of(const plan::Plan& plan, const graph::ModelGraph& graph) {
  std::vector<int> cuts;
  const std::vector<StageId> stages = plan::stage_of_layer(plan, graph);
  for (size_t l = 1; l < stages.size(); ++l) {
    if (stages[l] == stages[l - 1]) continue;
    if (stages[l].value != stages[l - 1].value + 1)
      refuse("takes stages of consecutive layers; this plan's are not");
    cuts.push_back(static_cast<int>(l));
  }
  return cuts;
}

void check_plan(const plan::Plan& plan) {
  if (traits(plan.strategy).replicas_per_copy() > 1) {
    refuse(fmt::format("does not run {}, whose stages have {} replicas each, one per direction",
                       to_string(plan.strategy), traits(plan.strategy).replicas_per_copy()));
  }
  if (std::any_of(plan.stages.begin(), plan.stages.end(),
                  [](const plan::Stage& stage) { return stage.replicas != 1; })) {
    refuse(fmt::format(
        "has no replicas of single stages; this plan has {}; a straight pipeline has none",
        plan.config()));
  }
  if (plan.weights != plan::WeightPolicy::Flush) {
    refuse(fmt::format(
        "has synchronous schedules only; this plan's strategy is {}, with the weight policy {} "
        "(expected gpipe, 1f1b-flush, interleaved, zb-h1...)",
        to_string(plan.strategy), to_string(plan.weights)));
  }
}

/// By layer: the innermost module that begins with it; empty: none does.
std::vector<std::string> modules_that_begin(const graph::ModelGraph& graph) {
  std::vector<std::string> begins;
  std::set<std::string> seen;
  for (const graph::LayerNode& layer : graph.layers()) {
    const std::string module = module_of_layer(layer.name);
    begins.push_back(seen.contains(module) ? std::string() : module);
    for (size_t end = 0; end != std::string::npos;) {
      end = module.find('.', end + 1);
      seen.insert(module.substr(0, end));
    }
  }
  return begins;
}

/// When each layer begins, in one pass over the model, and when the last one ends.
std::vector<double> begin_times(const profile::Profile& profile) {
  std::vector<double> times{0};
  for (const profile::LayerCost& cost : profile.costs)
    times.push_back(times.back() + static_cast<double>(cost.forward_ns + cost.backward_ns));
  return times;
}

/// One allowed place per cut, ascending, so that they move by the least time together; nothing
/// where there are too few.
std::optional<std::vector<int>> nearest(const std::vector<int>& cuts,
                                        const std::vector<int>& allowed,
                                        const std::vector<double>& times) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const size_t places = allowed.size();
  // best[c][p]: cuts 0 to c placed, cut c at allowed[p].
  std::vector<std::vector<double>> best(cuts.size(), std::vector<double>(places, kNever));
  std::vector<std::vector<size_t>> from(cuts.size(), std::vector<size_t>(places, 0));
  for (size_t c = 0; c < cuts.size(); ++c) {
    double before = c == 0 ? 0 : kNever;
    size_t place_before = 0;
    for (size_t p = 0; p < places; ++p) {
      if (before < kNever) {
        best[c][p] = before + std::abs(times[static_cast<size_t>(allowed[p])] -
                                       times[static_cast<size_t>(cuts[c])]);
        from[c][p] = place_before;
      }
      if (c > 0 && best[c - 1][p] < before) {
        before = best[c - 1][p];
        place_before = p;
      }
    }
  }
  if (cuts.empty()) return std::vector<int>{};
  const auto last = std::min_element(best.back().begin(), best.back().end());
  if (last == best.back().end() || *last == kNever) return std::nullopt;
  std::vector<int> chosen(cuts.size());
  auto place = static_cast<size_t>(last - best.back().begin());
  for (size_t c = cuts.size(); c-- > 0;) {
    chosen[c] = allowed[place];
    place = from[c][place];
  }
  return chosen;
}

}  // namespace

std::string module_of_layer(const std::string& layer) {
  const std::string module = layer.substr(0, layer.find('-'));
  return module == "forward" ? std::string() : module;
}

PytorchSplit pytorch_split(const plan::Plan& plan, const profile::Profile& profile,
                           const cluster::Cluster& cluster) {
  check_plan(plan);
  const std::vector<int> cuts = cuts_of(plan, profile.graph);
  const std::vector<std::string> modules = modules_that_begin(profile.graph);
  std::vector<int> allowed;
  for (size_t l = 1; l < modules.size(); ++l) {
    if (!modules[l].empty()) allowed.push_back(static_cast<int>(l));
  }
  const auto chosen = nearest(cuts, allowed, begin_times(profile));
  if (!chosen) {
    refuse(fmt::format("cuts before submodules only: the model has {} of them, the plan {} stages",
                       allowed.size(), plan.stages.size()));
  }
  PytorchSplit split{.plan = plan, .cuts = {}};
  size_t layer = 0;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const size_t end = s < chosen->size() ? static_cast<size_t>((*chosen)[s])
                                          : static_cast<size_t>(profile.graph.num_layers());
    split.plan.stages[s].layers.clear();
    for (; layer < end; ++layer)
      split.plan.stages[s].layers.push_back(profile.graph.layers()[layer].name);
    if (s < chosen->size())
      split.cuts.push_back({.module = modules[end], .moved = (*chosen)[s] - cuts[s]});
  }
  split.plan = reprice(split.plan, profile, cluster, plan.explanation.cost_model);
  return split;
}

}  // namespace penstock::planner
