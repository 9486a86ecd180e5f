#include "penstock/planner/pytorch_split.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "penstock/plan/boundaries.h"
#include "penstock/planner/planner.h"
#include "penstock/util/error.h"

namespace penstock::planner {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw NotForPytorch("torch.distributed.pipelining " + why);
}

[[noreturn]] void refuse_places(size_t found, size_t strided, size_t stages,
                                const std::string& cut_at) {
  refuse(
      fmt::format("is to cut before {}: behind the first layer the model has {} such {}, which "
                  "is too few for the plan's {} stages{}",
                  cut_at.empty() ? "blocks and modules outside of them"
                                 : fmt::format("modules that fit '{}'", cut_at),
                  found, found == 1 ? "place" : "places", stages,
                  strided == 0 ? ""
                               : fmt::format("; before {} more a tensor crosses that is not "
                                             "contiguous, as it sends them",
                                             strided)));
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
  if (!plan.teams().empty()) {
    refuse(
        fmt::format("knows whole stages only; this plan, {}, spreads some over teams: expected "
                    "a plan without (tensor 1)",
                    plan.config()));
  }
  if (const std::string codings = plan::boundaries_text(plan); !codings.empty()) {
    refuse(
        fmt::format("sends messages as they are; this plan's boundaries travel as {}: expected a "
                    "plan without codings (boundary float32)",
                    codings));
  }
  if (plan.weights != plan::WeightPolicy::Flush) {
    refuse(fmt::format(
        "has synchronous schedules only; this plan's strategy is {}, with the weight policy {} "
        "(expected gpipe, 1f1b-flush, interleaved, zb-h1...)",
        to_string(plan.strategy), to_string(plan.weights)));
  }
}

/// By layer: the modules that begin with it, outermost first.
std::vector<std::vector<std::string>> modules_that_begin(const graph::ModelGraph& graph) {
  std::vector<std::vector<std::string>> begins;
  std::set<std::string> seen;
  for (const graph::LayerNode& layer : graph.layers()) {
    const std::string module = module_of_layer(layer.name);
    begins.emplace_back();
    for (size_t end = 0; !module.empty() && end != std::string::npos;) {
      end = module.find('.', end + 1);
      const std::string outer = module.substr(0, end);
      if (seen.insert(outer).second) begins.back().push_back(outer);
    }
  }
  return begins;
}

/// By layer: the module before which it may be cut; empty: none.
std::vector<std::string> places(const graph::ModelGraph& graph, const std::string& cut_at) {
  std::vector<std::string> result;
  for (const std::vector<std::string>& begins : modules_that_begin(graph)) {
    const auto last = std::find_if(begins.rbegin(), begins.rend(), [&](const std::string& module) {
      return cut_at.empty() ? block_of_module(begins.back()) == module
                            : matches_module(cut_at, module);
    });
    result.push_back(last == begins.rend() ? std::string() : *last);
  }
  return result;
}

/// By layer: whether a value that is not contiguous crosses before it.
std::vector<bool> strided_cuts(const profile::Profile& profile) {
  std::vector<bool> cuts(profile.costs.size(), false);
  for (size_t reader = 0; reader < cuts.size(); ++reader) {
    for (const graph::ValueRef& value : profile.graph.layers()[reader].inputs) {
      if (value.is_model_input()) continue;
      const std::vector<int>& strided = profile.costs[value.layer.index()].strided_outputs;
      if (std::ranges::find(strided, value.output) == strided.end()) continue;
      for (size_t l = value.layer.index() + 1; l <= reader; ++l) cuts[l] = true;
    }
  }
  return cuts;
}

/// When each layer begins, in one pass over the model, and when the last one ends.
std::vector<double> begin_times(const profile::Profile& profile) {
  std::vector<double> times{0};
  for (const profile::LayerCost& cost : profile.costs)
    times.push_back(times.back() + static_cast<double>(cost.forward_ns + cost.backward_ns));
  return times;
}

/// Position of the first layer of each stage but the first; of stages that are not consecutive
/// layers, of the layer before which the model takes as long as the stages before.
std::vector<int> cuts_of(const plan::Plan& plan, const graph::ModelGraph& graph,
                         const std::vector<double>& times) {
  const std::vector<StageId> stages = plan::stage_of_layer(plan, graph);
  std::vector<double> stage_times(plan.stages.size(), 0);
  for (size_t l = 0; l < stages.size(); ++l)
    stage_times[static_cast<size_t>(stages[l].value)] += times[l + 1] - times[l];
  const bool consecutive = std::is_sorted(stages.begin(), stages.end(),
                                          [](StageId a, StageId b) { return a.value < b.value; });
  std::vector<int> cuts;
  double before = 0;
  for (size_t s = 1; s < plan.stages.size(); ++s) {
    before += stage_times[s - 1];
    const auto first = std::find_if(stages.begin(), stages.end(), [s](StageId stage) {
      return static_cast<size_t>(stage.value) == s;
    });
    const auto as_long = std::min_element(times.begin(), times.end(), [before](double a, double b) {
      return std::abs(a - before) < std::abs(b - before);
    });
    const auto cut = consecutive ? first - stages.begin() : as_long - times.begin();
    cuts.push_back(static_cast<int>(cut));
  }
  return cuts;
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

std::string block_of_module(const std::string& module) {
  std::string block;
  for (size_t end = 0; end != std::string::npos;) {
    end = module.find('.', end + 1);
    const std::string outer = module.substr(0, end);
    const std::string part = outer.substr(outer.rfind('.') + 1);
    // "norm2" alone is a part of a block, "encoder_layer_1.norm" has one.
    const size_t digits = part.size() - (part.find_last_not_of("0123456789") + 1);
    if (digits > 0 && (digits == part.size() || end != std::string::npos)) block = outer;
  }
  return block.empty() ? module : block;
}

bool matches_module(const std::string& pattern, const std::string& module) {
  const auto as_path = [](std::string text) {
    std::replace(text.begin(), text.end(), '.', '/');
    return text;
  };
  return fnmatch(as_path(pattern).c_str(), as_path(module).c_str(), FNM_PATHNAME) == 0;
}

PytorchSplit pytorch_split(const plan::Plan& plan, const profile::Profile& profile,
                           const cluster::Cluster& cluster, const std::string& cut_at) {
  check_plan(plan);
  const std::vector<double> times = begin_times(profile);
  const std::vector<int> cuts = cuts_of(plan, profile.graph, times);
  const std::vector<std::string> modules = places(profile.graph, cut_at);
  const std::vector<bool> strided = strided_cuts(profile);
  std::vector<int> allowed;
  size_t refused = 0;
  for (size_t l = 1; l < modules.size(); ++l) {
    if (modules[l].empty()) continue;
    if (strided[l])
      ++refused;
    else
      allowed.push_back(static_cast<int>(l));
  }
  const auto chosen = nearest(cuts, allowed, times);
  if (!chosen) refuse_places(allowed.size(), refused, plan.stages.size(), cut_at);
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
